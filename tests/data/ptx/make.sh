#!/bin/sh
# Makes the compressed PTX beside this file; the first argument is nvcc (of CUDA 13.0).
set -eu
nvcc=$1
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT

ptx() { # name, architecture, source, further options
  name=$1 arch=$2 source=$3
  shift 3
  "$nvcc" -w -ptx -arch="compute_$arch" -std=c++17 "$@" "$source" -o "$work/$name.ptx"
  sed -E 's#^([[:space:]]*\.file[[:space:]]+[0-9]+ )"[^"]*/#\1"#' "$work/$name.ptx" | gzip -9n >"$here/$name.ptx.gz"
}

ptx language.sm_90a 90a "$here/language.cu" -O3 -lineinfo
ptx language.sm_100a 100a "$here/language.cu" -O3 -lineinfo
ptx language.debug 90a "$here/language.cu" -G
ptx blackwell.sm_100a 100a "$here/blackwell.cu" -O3 -lineinfo
ptx gemm.sm_90a 90a "$root/reference/gemm_n7168_k5120/sm_90a.cu" -O3 -lineinfo -I"$root/src/ptxbench/toolchain/include"
