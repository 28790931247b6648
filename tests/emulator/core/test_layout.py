"""Where shared variables lie: as in the machine code that ptxas makes of the same text."""

from __future__ import annotations

import random
import re
import subprocess
from pathlib import Path

import pytest

from ptxbench.emulator.codegen.program import flatten
from ptxbench.emulator.host.kernels import kernel_info
from ptxbench.emulator.machine.layout import place_shared
from ptxbench.emulator.ptx.parse import parse
from ptxbench.settings import Settings
from ptxbench.toolchain.elf import read_cubin
from ptxbench.toolchain.toolkit import find_toolkit

ALIGNMENTS = (1, 2, 4, 8, 16, 32, 128, 1024)
TEXT = """.version 9.0
.target sm_90a
.address_size 64
{outside}
.visible .entry k() {{
.reg .b16 h; .reg .b32 r;
{inside}
mov.u32 r, %tid.x; cvt.u16.u32 h, r;
{stores}
ret;
}}
"""


def drawn(seed: int) -> tuple[str, list[str]]:
    """A kernel that stores to some of its shared variables, and their names in the order of the stores."""
    random_ = random.Random(seed)

    def declare(letter: str, most: int) -> dict[str, str]:
        names = [f"{letter}{at}" for at in range(random_.randrange(most))]
        sizes = {name: (random_.choice(ALIGNMENTS), random_.randrange(1, 300)) for name in names}
        return {name: f".shared .align {align} .b8 {name}[{size}];" for name, (align, size) in sizes.items()}

    own, modules = declare("v", 5), declare("g", 4)
    names = [name for name in (*own, *modules) if random_.random() < 0.8]
    random_.shuffle(names)
    names.append("dynamic")
    dynamic = f".extern .shared .align {random_.choice(ALIGNMENTS)} .b8 dynamic[];"
    stores = "\n".join(f"st.volatile.shared.u8 [{name}], h;" for name in names)
    return TEXT.format(
        outside="\n".join((*modules.values(), dynamic)), inside="\n".join(own.values()), stores=stores
    ), names


@pytest.mark.parametrize("seed", range(6))
def test_variables_lie_where_ptxas_puts_them(seed: int, tmp_path: Path) -> None:
    toolkit = find_toolkit(Settings.load())
    text, names = drawn(seed)
    source, cubin = tmp_path / "k.ptx", tmp_path / "k.cubin"
    source.write_text(text)
    subprocess.run([toolkit.ptxas, "-arch=sm_90a", source, "-o", cubin], check=True)
    done = subprocess.run([toolkit.nvdisasm, "-c", cubin], check=True, capture_output=True, text=True)
    offsets = re.findall(r"STS\.U8\S* \[[^\]]*?(?:\+?(0x[0-9a-f]+))?\]", done.stdout)
    known = kernel_info(read_cubin(cubin.read_bytes(), "sm_90a"), "k").static_shared
    module = parse(text)
    placed, static, dynamic = place_shared(flatten(module, module.functions["k"]), known)
    assert [placed[name] for name in names] == [int(offset or "0", 16) for offset in offsets]
    assert dynamic == placed["dynamic"]
    assert static >= known
