"""The blocks of code in a target's documents, gathered into one compilation in which each function is compiled."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.knowledge.kernels import KERNELS, headers

from ptxbench.knowledge.functions import functions_of
from ptxbench.knowledge.hub import PACKS, load_hub
from ptxbench.schema.candidate import Candidate, SourceFile
from ptxbench.schema.values import Target
from ptxbench.settings import Settings
from ptxbench.toolchain.build import Built, build

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INSTANCES = {
    "fill": "fill<4, 8192>",
    "drain": "drain<4, Anything>",
    "advance": "advance<true, Anything>",
    "softmax": "softmax<false>",
}
"""With which arguments a template of the documents is compiled."""


_CALLER = """#include <type_traits>
struct Anything {
  template <class... T> __device__ void operator()(T&&...) const {}
};
template <class F> struct Caller;
template <class R, class... A> struct Caller<R (*)(A...)> {
  template <auto kFunction> static __device__ void call(void** given) {
    int place = 0;
    kFunction(static_cast<A>(*static_cast<std::remove_reference_t<A>*>(given[place++]))...);
  }
};
template <auto kFunction> __global__ void calls(void** given) {
  Caller<decltype(kFunction)>::template call<kFunction>(given);
}
"""
"""A kernel for each function of the documents, with arguments from memory: so ptxas sees each of them."""


@dataclass(frozen=True)
class Block:
    """A fenced block; `name` is that of its document and its number there."""

    name: str
    language: str
    text: str


def documents(target: Target, language: str = "cuda") -> tuple[Path, ...]:
    """All documents of a target's packs."""
    hub = load_hub()
    shelf = hub.cuda[target] if language == "cuda" else hub.triton[target]
    files = [file for group in shelf.groups.values() for file in group]
    files += [file for tag in shelf.tags.values() for file in tag.files]
    files += [patch.file for patch in hub.patches.values()]
    return tuple(PACKS / file for file in dict.fromkeys(files) if file.endswith(".md"))


def blocks_of(document: Path) -> Iterator[Block]:
    """The fenced blocks of a document."""
    for number, match in enumerate(_BLOCK.finditer(document.read_text())):
        yield Block(f"{document.stem}_{number}", match[1], match[2])


@functools.cache
def built(target: Target) -> Built:
    """One compilation of the headers, of every block of CUDA for a target, and of kernels put together from them."""
    blocks = [block for path in documents(target) for block in blocks_of(path) if block.language == "cuda"]
    includes = {line for block in blocks for line in block.text.splitlines() if line.startswith("#include")}
    lines = [*sorted(includes), *(f'#include "{path.name}"' for path in headers(target))]
    lines.append(_CALLER)
    sources = [SourceFile(path=path.name, content=path.read_text()) for path in headers(target)]
    together = (KERNELS / f"patterns_{target.value}.cu").read_text()
    whole = "\n".join([*lines, *(_placed(block) for block in blocks), '#line 1 "patterns.cu"', together])
    sources.append(SourceFile(path="blocks.cu", content=whole))
    return build(Candidate(sources=tuple(sources), entry_file="blocks.cu"), target, Settings.load())


def _placed(block: Block) -> str:
    """A block in a namespace of its own, with a kernel that calls each of its device functions."""
    text = re.sub(r"^#include.*\n", "", block.text, flags=re.MULTILINE)
    text = re.sub(r"(DLL_EXPORT_TYPED_FUNC\()run,", rf"\1run_{block.name},", text)
    device = [each for each in functions_of(text) if "__device__" in each.signature]
    names = [
        f"{block.name}::{INSTANCES[each.name] if each.signature.startswith('template') else each.name}"
        for each in device
    ]
    kernels = "".join(f"template __global__ void calls<&{name}>(void**);\n" for name in names)
    return f'#line 1 "{block.name}"\nnamespace {block.name} {{\n{text}}}\n' + kernels
