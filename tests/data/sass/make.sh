#!/bin/sh
# Makes the listings in this folder from the sources beside it; needs nvcc and cuobjdump on the PATH.
# Each line: kernel, address, predicate (or -), opcode.
set -e
cd "$(dirname "$0")"
listing() {
  nvcc -O3 -std=c++17 -gencode "arch=compute_$2,code=sm_$2" -cubin -o "$4.cubin" "$1"
  cuobjdump -sass "$4.cubin" | awk '
    /Function :/ { kernel = $3 }
    $1 ~ /^\/\*[0-9a-f]+\*\/$/ && $2 !~ /^\/\*/ {
      predicate = "-"; opcode = $2
      if (opcode ~ /^@/) { predicate = opcode; opcode = $3 }
      sub(/;$/, "", opcode); gsub(/[\/*]/, "", $1)
      print kernel, $1, predicate, opcode
    }' > "$3"
  rm "$4.cubin"
}
listing hopper.cu 90a hopper.sm_90a.txt hopper
listing portable.cu 90a portable.sm_90a.txt portable
listing portable.cu 100a portable.sm_100a.txt portable
listing blackwell.cu 100a blackwell.sm_100a.txt blackwell
