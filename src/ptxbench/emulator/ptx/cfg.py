"""Control flow of a function: basic blocks, and where diverged lanes meet again; executes nothing.

A block ends before a label, after a branch, call or exit, and after an instruction that may have to wait, so that the
machine changes between lanes and warps only at block borders. Registers of asynchronous products are first used in a
block of their own, so that the machine can look whether the products are over.
"""

from __future__ import annotations

from collections.abc import Sequence

from ptxbench.emulator.errors import PtxError
from ptxbench.emulator.ptx.ir import Block, Function, Instruction, Label, Vector
from ptxbench.emulator.ptx.isa import is_blocking
from ptxbench.emulator.ptx.registers import slots

_NO_FALL_THROUGH = frozenset(("ret", "exit", "trap"))
_ENDS = frozenset(("bra", "brx", "call", "ret", "exit", "trap"))


def blocks(instructions: Sequence[Instruction], labels: Sequence[tuple[int, str]]) -> tuple[Block, ...]:
    """Cut a function's instructions into blocks.

    Args:
        instructions: All of them, in order.
        labels: (index of the instruction that it precedes, unique name).
    """
    starts = {0} | {index for index, _ in labels}
    owed: set[int] = set()
    for instruction in instructions:
        if owed and (instruction.index in starts or not owed.isdisjoint(_ordinary(instruction))):
            starts.add(instruction.index)
            owed = set()
        if instruction.opcode in _ENDS or is_blocking(instruction.name) or _owes(instruction):
            starts.add(instruction.index + 1)
        elif _is_product(instruction):
            owed.update(*(slots(each) for each in instruction.operands[:2] if isinstance(each, Vector)))
    # A label behind the last instruction is a block of its own; an end there is not.
    labelled = {index for index, _ in labels}
    ordered = sorted(start for start in starts if start < len(instructions) or start in labelled or start == 0)
    number = {start: place for place, start in enumerate(ordered)}
    names: dict[int, list[str]] = {}
    for index, name in labels:
        names.setdefault(index, []).append(name)
    place_of = {name: number[index] for index, name in labels}
    made = []
    for place, start in enumerate(ordered):
        end = ordered[place + 1] if place + 1 < len(ordered) else len(instructions)
        inside = tuple(instructions[start:end])
        following = place + 1 if place + 1 < len(ordered) else None
        made.append(Block(place, tuple(names.get(start, ())), inside, _successors(inside, following, place_of)))
    return tuple(made)


def _successors(inside: tuple[Instruction, ...], following: int | None, place_of: dict[str, int]) -> tuple[int, ...]:
    last = inside[-1] if inside else None
    targets: list[int] = []
    falls = True
    if last is not None and last.opcode in ("bra", "brx"):
        if not last.operands:
            raise PtxError(last.line, f"`{last.name}` names no label")
        target = last.operands[-1]
        named = target.items if isinstance(target, Vector) else (target,)
        targets = [place_of[each.name] for each in named if isinstance(each, Label)]
        falls = last.guard is not None
    elif last is not None and last.opcode in _NO_FALL_THROUGH:
        falls = last.guard is not None
    fall = [following] if falls and following is not None else []
    return tuple(dict.fromkeys(fall + targets))


def _owes(instruction: Instruction) -> bool:
    """Whether registers get their values later, so that their first use must be in a block of its own."""
    return instruction.opcode == "tcgen05" and instruction.modifiers[0] == "ld"


def _is_product(instruction: Instruction) -> bool:
    return instruction.opcode == "wgmma" and instruction.modifiers[0] == "mma_async"


def _ordinary(instruction: Instruction) -> set[int]:
    """Registers that an instruction reads or writes at once; those of a product are used later."""
    operands = instruction.operands[2:] if _is_product(instruction) else instruction.operands
    made = set().union(*(slots(each) for each in operands))
    return made | {instruction.guard.register.slot} if instruction.guard is not None else made


def reconvergence(function: Function) -> tuple[int | None, ...]:
    """For each block its immediate post-dominator: where lanes that part at its end meet again; None is the exit.

    The method is that of Lengauer and Tarjan (1979) with path compression, on the reversed graph from a virtual exit.
    Blocks that never reach the exit (endless loops) have None.
    """
    return _Dominators(function.blocks).immediate()


class _Dominators:
    """Immediate dominators of the reversed graph; node 0 is the virtual exit, node i + 1 is block i."""

    def __init__(self, graph: Sequence[Block]) -> None:
        self.size = len(graph) + 1
        self.after: list[list[int]] = [[] for _ in range(self.size)]
        self.before: list[list[int]] = [[] for _ in range(self.size)]
        for block in graph:
            for target in block.successors or (-1,):
                self.after[target + 1].append(block.index + 1)
                self.before[block.index + 1].append(target + 1)
            if block.successors and _may_leave(block):
                self.after[0].append(block.index + 1)
                self.before[block.index + 1].append(0)

    def immediate(self) -> tuple[int | None, ...]:
        order, parent = self._search()
        number = {node: place for place, node in enumerate(order)}
        semi = dict(number)
        best = {node: node for node in order}
        ancestor: dict[int, int] = {}
        buckets: dict[int, list[int]] = {node: [] for node in order}
        result: dict[int, int] = {}
        for node in reversed(order[1:]):
            for earlier in self.before[node]:
                if earlier in number:
                    semi[node] = min(semi[node], semi[self._evaluate(earlier, ancestor, semi, best)])
            buckets[order[semi[node]]].append(node)
            ancestor[node] = parent[node]
            for other in buckets[parent[node]]:
                through = self._evaluate(other, ancestor, semi, best)
                result[other] = through if semi[through] < semi[other] else parent[node]
            buckets[parent[node]].clear()
        for node in order[1:]:
            if result[node] != order[semi[node]]:
                result[node] = result[result[node]]
        return tuple((result.get(node) or 0) - 1 if result.get(node) else None for node in range(1, self.size))

    def _search(self) -> tuple[list[int], dict[int, int]]:
        """Depth-first order from the exit, and the search tree."""
        order: list[int] = []
        parent: dict[int, int] = {}
        seen: set[int] = set()
        stack = [(0, 0)]
        while stack:
            node, origin = stack.pop()
            if node in seen:
                continue
            seen.add(node)
            parent[node] = origin
            order.append(node)
            stack.extend((child, node) for child in self.after[node] if child not in seen)
        return order, parent

    def _evaluate(self, node: int, ancestor: dict[int, int], semi: dict[int, int], best: dict[int, int]) -> int:
        """The node of least semidominator on the path to the forest's root; compresses the path."""
        if node not in ancestor:
            return node
        path = [node]
        while ancestor[path[-1]] in ancestor:
            path.append(ancestor[path[-1]])
        root = ancestor[path[-1]]
        for lower, upper in zip(reversed(path[:-1]), reversed(path[1:]), strict=True):
            if semi[best[upper]] < semi[best[lower]]:
                best[lower] = best[upper]
            ancestor[lower] = root
        return best[node]


def _may_leave(block: Block) -> bool:
    """Whether a guarded exit or return ends the block."""
    return bool(block.instructions) and block.instructions[-1].opcode in _NO_FALL_THROUGH
