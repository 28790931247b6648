"""Programs of mbarriers: one thread steps an object through its phases; counts and phases after each step are kept."""

from __future__ import annotations

from tests.emulator.agreement.program import Part, Program

from ptxbench.emulator.ptx.isa import Form, mnemonics, operands

REGISTERS = ".reg .b32 r<20>; .reg .b64 d<20>; .reg .pred p<8>; .reg .b32 own, there; .reg .b64 own64, there64;"
START = """.shared .align 16 .b8 smem[64]; .reg .b32 bar; .reg .pred first; mov.u32 bar, smem;
setp.eq.u32 first, t, 0; @!first bra DONE;
"""
STRIDE = 32


def _probe(place: int) -> str:
    """Whether phases 0 and 1 are over, as two words."""
    return f"""mbarrier.test_wait.parity.shared::cta.b64 p1, [bar], 0; selp.u32 r1, 1, 0, p1;
mbarrier.test_wait.parity.shared::cta.b64 p2, [bar], 1; selp.u32 r2, 1, 0, p2;
mad.lo.u32 r1, r2, 2, r1; st.global.b32 [od+{4 * place}], r1;"""


def _address(mnemonic: str, remote: bool) -> tuple[str, str]:
    """Statements that make the address of a form's object, and it."""
    if "shared::cluster" in mnemonic:
        rank = "xor.b32 r9, rank, 1;" if remote else "mov.u32 r9, rank;"
        return f"{rank} mapa.shared::cluster.u32 there, bar, r9;", "there"
    if ".shared" in mnemonic:
        return "mov.u32 own, bar;", "own"
    return "cvt.u64.u32 own64, bar; cvta.shared.u64 own64, own64;", "own64"


def _counted(mnemonic: str, specs: int, where: str, counts: list[int]) -> str:
    """The step itself, with an operand, or without the one that may be left out."""
    words = mnemonic.split(".")
    target = "_" if "shared::cluster" in words else "d1"
    if words[1] in ("expect_tx", "complete_tx"):
        return f"{mnemonic} [{where}], {counts[0]};"
    return f"{mnemonic} {target}, [{where}], {counts[0]};"


def _step(form: Form, mnemonic: str) -> str:
    """An object of 4 arrivals; the step; the arrivals and bytes that are still missing, one by one."""
    words = mnemonic.split(".")
    make, where = _address(mnemonic, remote=False)
    arrive = "mbarrier.arrive.shared::cta.b64 d3, [bar];"
    count = "mbarrier.pending_count.b64 r3, d3;"
    lines = ["mbarrier.init.shared::cta.b64 [bar], 4;", make, "mov.u64 d1, 0;"]
    if words[1] == "complete_tx":
        lines.append("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [bar], 48;")
    transfers = "expect_tx" in words or words[1] == "complete_tx"
    lines.append(_counted(mnemonic, len(operands(form, mnemonic)), where, [48 if transfers else 2]))
    lines += [_probe(0), f"{arrive} {count} st.global.b32 [od+4], r3;", _probe(2)]
    if words[1] == "expect_tx" or "expect_tx" in words:
        lines.append("mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [bar], 48;")
    lines.append(_probe(3))
    for _ in range(4):
        lines += ["mbarrier.test_wait.parity.shared::cta.b64 p3, [bar], 0;", f"@!p3 {arrive}"]
    lines += [_probe(4), f"{arrive} {count} st.global.b32 [od+20], r3;", f"{arrive} {arrive} {_probe(6)}"]
    lines.append("mbarrier.inval.shared::cta.b64 [bar];")
    return "\n".join(lines)


def _simple(mnemonic: str) -> str:
    make, where = _address(mnemonic, remote=False)
    words = mnemonic.split(".")
    if words[1] == "init":
        return f"""{make} {mnemonic} [{where}], 2; {_probe(0)} mbarrier.arrive.shared::cta.b64 d3, [bar];
mbarrier.pending_count.b64 r3, d3; st.global.b32 [od+4], r3; mbarrier.arrive.shared::cta.b64 d3, [bar]; {_probe(2)}
mbarrier.inval.shared::cta.b64 [bar];"""
    if words[1] == "inval":
        return f"""mbarrier.init.shared::cta.b64 [bar], 2; {make} {mnemonic} [{where}]; st.shared.b32 [bar], 77;
ld.shared.b32 r1, [bar]; st.global.b32 [od], r1;"""
    return f"""mbarrier.init.shared::cta.b64 [bar], 5; mbarrier.arrive.noComplete.shared::cta.b64 d1, [bar], 2;
{mnemonic} r1, d1; st.global.b32 [od], r1; mbarrier.arrive.noComplete.shared::cta.b64 d1, [bar], 1;
{mnemonic} r1, d1; st.global.b32 [od+4], r1; mbarrier.inval.shared::cta.b64 [bar];"""


def _wait(form: Form, mnemonic: str, place: int) -> str:
    make, where = _address(mnemonic, remote=False)
    parity = "parity" in mnemonic
    old, new = ("0", "1") if parity else ("d1", "d2")
    timed = len(operands(form, mnemonic)) > 3 and place % 2
    hint = ", 1000" if timed else ""
    again = f"AGAIN{place}: {mnemonic} p1, [{where}], {old}{hint}; @!p1 bra AGAIN{place};"
    return f"""mbarrier.init.shared::cta.b64 [bar], 2; {make} mbarrier.arrive.shared::cta.b64 d1, [bar];
{mnemonic} p1, [{where}], {old}; selp.u32 r1, 1, 0, p1; st.global.b32 [od], r1;
mbarrier.arrive.shared::cta.b64 d1, [bar];
{again}
mbarrier.arrive.shared::cta.b64 d2, [bar];
{mnemonic} p1, [{where}], {new}; selp.u32 r1, 1, 0, p1; st.global.b32 [od+4], r1; {_probe(2)}
mbarrier.inval.shared::cta.b64 [bar];"""


def programs(form: Form) -> list[Program]:
    """One program of all mnemonics; remote arrivals are made to the thread's own CTA, by its cluster address."""
    parts = []
    for place, mnemonic in enumerate(mnemonics(form)):
        word = mnemonic.split(".")[1]
        if word in ("init", "inval", "pending_count"):
            body = _simple(mnemonic)
        elif word in ("test_wait", "try_wait"):
            body = _wait(form, mnemonic, place)
        else:
            body = _step(form, mnemonic)
        parts.append(Part(mnemonic, f"{REGISTERS}\n{body}", STRIDE))
    return [Program(form.name, tuple(parts), threads=32, start=START)]


def remote(form: Form) -> list[Program]:
    """Steps on the object of the other CTA of a pair, which waits for them."""
    parts = []
    for place, mnemonic in enumerate(mnemonics(form)):
        make, where = _address(mnemonic, remote=True)
        words = mnemonic.split(".")
        transfers = "expect_tx" in words or words[1] == "complete_tx"
        before = "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [bar], 48;" if words[1] == "complete_tx" else ""
        after = (
            "mbarrier.complete_tx.relaxed.cluster.shared::cluster.b64 [there], 48;" if transfers and not before else ""
        )
        arrives = "" if "arrive" in words[1] else "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [there];"
        init = 2 if not transfers and "arrive" in words[1] else 1
        both = "barrier.cluster.arrive; barrier.cluster.wait;"
        body = f"""{REGISTERS} mbarrier.init.shared::cta.b64 [bar], {init}; {before}
fence.mbarrier_init.release.cluster; {both} {make}
{_counted(mnemonic, 0, where, [48 if transfers else 2])} {after} {arrives}
AGAIN{place}: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p1, [bar], 0; @!p1 bra AGAIN{place};
{_probe(0)} {both} mbarrier.inval.shared::cta.b64 [bar];"""
        parts.append(Part(f"{mnemonic} remote", body, STRIDE))
    return [Program(form.name, tuple(parts), threads=1, cluster=2, grid=2, start=START)]
