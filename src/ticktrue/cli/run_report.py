"""How the result of `ticktrue run` is told: lines for a person, or one document."""

import hashlib
import sys
import time
from typing import Literal

from ticktrue.cli.documents import (
    ModelInput,
    ProofPart,
    RejectedDocument,
    RunDocument,
    SystemInput,
    ViolationPart,
    encode,
    header,
)
from ticktrue.cli.hw_show import fact_part
from ticktrue.cli.output import Terminal
from ticktrue.cli.program_file import degrees, tell_hypothetical
from ticktrue.cli.prove import Proof, Rejected
from ticktrue.cli.run_job import Answer
from ticktrue.cli.sampling_parts import logprob_lines, sampling_part, sampling_words, token_logprobs
from ticktrue.cli.target import Found
from ticktrue.cli.timing_parts import causes_line, step_times, time_step
from ticktrue.hw import formats_allowed
from ticktrue.model import list_models
from ticktrue.program import Plan, Timetable, program_digest
from ticktrue.report import assumed_table
from ticktrue.sim import Assumed, Timing, simulate
from ticktrue.units import Cycles
from ticktrue.verify import Verdict

SHOWN = 12


def tell_answer(answer: Answer, terminal: Terminal) -> int:
    """Times the program and tells everything; 1 where the replay contradicts the stated cycles."""
    with terminal.stage("replaying"):
        report = _Report(answer)
    if terminal.json:
        terminal.document(encode(report.document()))
    elif terminal.quiet:
        terminal.close()
    else:
        report.lines(terminal)
    return 0 if report.clean else 1


class _Report:
    """The times of an answer, and its two ways to be shown."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        system, program = answer.found.system, answer.program
        self.prefill = [simulate(program, system, t) for t in _once(answer)]
        self.prefill_cycles, self.prefill_us = _prefill(answer, self.prefill)
        self.decode: tuple[Timing, tuple[Assumed, ...]] | None = None
        if answer.decode:
            self.decode = time_step(program, answer.decode[-1].step.timetable, system)
        self.sha256 = program_digest(program)
        self.total_s = time.perf_counter() - answer.begin

    @property
    def clean(self) -> bool:
        """Whether the replay gives every stated cycle."""
        return all(t.clean for t in self.prefill) and (self.decode is None or self.decode[0].clean)

    def document(self) -> RunDocument:
        """Everything as one document."""
        a, decode = self.answer, self.decode[0] if self.decode else None
        prefill_s = sum(t.wall_s for t in a.prefill)
        return RunDocument(
            **header(sys.argv[1:]),
            model=model_input(a.found, a.job.target.model, a.weights),
            system=system_input(a.found, a.program.image.key.plan),
            prompt=a.prompt,
            prompt_sha256=hashlib.sha256(a.prompt.encode()).hexdigest(),
            raw=a.job.raw,
            prompt_token_ids=a.prompt_ids,
            sampling=sampling_part(a.sampling),
            token_ids=a.token_ids,
            logprobs=token_logprobs(a),
            text=a.text,
            finish_reason=self.finish_reason(),
            program_sha256=self.sha256,
            proofs=tuple(proof_part(p) for p in a.proofs),
            replay_clean=self.clean,
            final_context=a.final_context,
            prefill_steps=len(a.prefill),
            sim_prefill_cycles=self.prefill_cycles,
            sim_prefill_us=self.prefill_us,
            sim_prefill_tokens_per_s=len(a.prompt_ids) / self.prefill_us * 1e6,
            decode=step_times(*self.decode) if self.decode else None,
            sim_cycles_per_token=decode.duration_cycles if decode else None,
            sim_us_per_token=decode.sim_duration_us if decode else None,
            sim_tokens_per_s=decode.sim_tokens_per_s if decode else None,
            wall_decode_tokens_per_s=self.wall_decode(),
            wall_prefill_tokens_per_s=len(a.prompt_ids) / prefill_s,
            wall_compile_s=a.compile_s,
            wall_kernels_s=a.kernels_s,
            wall_total_s=self.total_s,
        )

    def finish_reason(self) -> Literal["stop", "length", "context"]:
        """Why the answer ended."""
        a = self.answer
        if a.token_ids and a.token_ids[-1] in a.found.model.tokenizer().eos:
            return "stop"
        return "length" if len(a.token_ids) >= a.job.max_tokens else "context"

    def wall_decode(self) -> float | None:
        """Tokens that this host computes in a second of decode steps."""
        seconds = sum(t.wall_s for t in self.answer.decode)
        return len(self.answer.decode) / seconds if seconds else None

    def lines(self, terminal: Terminal) -> None:
        """The result for a person."""
        a, key = self.answer, self.answer.program.image.key
        terminal.line()
        reason = {"stop": "", "length": " (ended by --max-tokens)", "context": " (ended by --max-model-len)"}
        kinds = ", ".join(t.kind.label() for t in a.program.timetables)
        terminal.line(f"model      {key.model}, {key.fmt}, context up to {key.max_context:,}")
        titles = {m.name: m.title for m in list_models()}
        if a.job.target.model in titles:
            terminal.line(
                f"           {titles[a.job.target.model]} as published; weights dequantised to bf16"
            )
        terminal.line(f"system     {key.system}, {_chips(key.plan.chips)} ({degrees(key)})")
        tell_hypothetical(key, terminal)
        terminal.line(
            f"tokens     {len(a.prompt_ids)} in, {len(a.token_ids)} out{reason[self.finish_reason()]}"
        )
        terminal.line(f"sampling   {sampling_words(a.sampling)}")
        terminal.line(f"program    sha256 {self.sha256}")
        terminal.line(f"           timetables {kinds}")
        rows = sum(p.verdict.rows * p.verdict.chips for p in a.proofs)
        known = sum(p.cached for p in a.proofs)
        from_cache = f"; {known} of {len(a.proofs)} proved earlier, taken from the cache" if known else ""
        terminal.line(f"verify     rules: clean, {rows:,} rows on {_chips(key.plan.chips)}{from_cache}")
        terminal.line("           dataflow: every timetable's rows give the digest of the model's graph")
        self._times(terminal)
        self._wall(terminal)
        for line in logprob_lines(a):
            terminal.line(line)

    def _times(self, terminal: Terminal) -> None:
        a = self.answer
        if all(t.clean for t in self.prefill):
            steps = f"{len(a.prefill)} step{'s' if len(a.prefill) > 1 else ''}"
            tokens = f"{len(a.prompt_ids)} token{'s' if len(a.prompt_ids) > 1 else ''}"
            terminal.line(
                f"sim        prefill {self.prefill_cycles:,} cycles = {self.prefill_us:,.1f} us for {tokens} in {steps}"
            )
        for timing in self.prefill:
            _mismatches(timing, terminal)
        if self.decode is None:
            return
        timing, constants = self.decode
        _mismatches(timing, terminal)
        if not timing.clean:
            return
        terminal.line(f"sim        decode {timing.duration_cycles:,} cycles = {timing.sim_duration_us:,.1f} us per token "
                      f"at context {a.final_context:,}")  # fmt: skip
        terminal.line(f"           {timing.sim_tokens_per_s:,.0f} simulated tokens/s "
                      f"({timing.interval_cycles:,} cycles from step to step)")  # fmt: skip
        if timing.host_cycles:
            terminal.line(
                f"           {timing.host_cycles:,} of those for the host, which chooses the token: an assumed constant"
            )
        terminal.line(f"cycles     {causes_line(timing)}")
        self._format(terminal)
        if constants:
            terminal.line(
                "assumed    these constants are not published and move the time per token by more than 2 %:"
            )
            for line in assumed_table(constants).split("\n"):
                terminal.line(" " * 11 + line)
        else:
            terminal.line("assumed    no assumed constant moves the time per token by more than 2 %")

    def _format(self, terminal: Terminal) -> None:
        """That the chip takes this format at all may itself be an assumption: then it stands with the others."""
        fmt = self.answer.program.image.key.fmt
        known = next((f for f in self.answer.found.system.chip.mxm_formats if f.format == fmt), None)
        if known is not None and known.grade == "assumed":
            has = "does not have" if known.absent else "has"
            terminal.line(f"assumed    that the chip {has} {fmt}: {known.why}")

    def _wall(self, terminal: Terminal) -> None:
        a, decode = self.answer, self.wall_decode()
        prefill = len(a.prompt_ids) / sum(t.wall_s for t in a.prefill)
        speed = f"decode {decode:,.1f} tokens/s, " if decode else ""
        kernels = f", kernels {a.kernels_s:.1f} s (once)" if a.kernels_s else ""
        terminal.line(f"wall       this host: {speed}prefill {prefill:,.1f} tokens/s; compile and verify "
                      f"{a.compile_s:.1f} s{kernels}, in all {self.total_s:.1f} s")  # fmt: skip


def _mismatches(timing: Timing, terminal: Terminal) -> None:
    """What the replay holds against a timetable: then it has no times to tell."""
    if timing.clean:
        return
    terminal.line(
        f"sim        {timing.kind.label()}: NOT CLEAN, so no times; the replay gives other cycles than the program states"
    )
    for mismatch in timing.mismatches[:SHOWN]:
        terminal.line(f"{mismatch.code}: {mismatch.message}")
    if len(timing.mismatches) > SHOWN:
        terminal.line(f"... and {len(timing.mismatches) - SHOWN:,} more")


def _chips(count: int) -> str:
    return f"{count} chip{'s' * (count != 1)}"


def _once(answer: Answer) -> list[Timetable]:
    """Each prefill timetable once, in order of use."""
    return list({t.step.timetable.kind: t.step.timetable for t in answer.prefill}.values())


def _prefill(answer: Answer, timings: list[Timing]) -> tuple[int, float]:
    """Cycles, and simulated microseconds, from the first issue to the first token of the answer."""
    by_kind = {t.kind: t for t in timings}
    steps = [by_kind[t.step.timetable.kind] for t in answer.prefill]
    last = steps[-1]
    cycles = Cycles(sum(t.interval_cycles for t in steps) - last.interval_cycles + last.elapsed_cycles)
    return cycles, last.clock.seconds(cycles) * 1e6


def model_input(found: Found, ref: str, weights: str) -> ModelInput:
    """The model as a part of a document."""
    spec = found.model.spec
    return ModelInput(
        ref=ref, name=spec.name, path=str(found.model.path), spec_sha256=spec.digest(), weights_sha256=weights
    )


def system_input(found: Found, plan: Plan) -> SystemInput:
    """The machine as a part of a document, every assumed number included."""
    system, options, first = found.system, found.options, plan.grids[0]
    return SystemInput(
        name=system.name, chips=system.chips, heads_degree=first.h, context_degree=first.cp,
        head_groups=tuple(grid.h for grid in plan.grids), format=options.fmt, kv_format=options.kv,
        format_grade=formats_allowed(system.chip, options.fmt, options.hypothetical), hypothetical=options.hypothetical,
        max_model_len=options.max_context, facts_sha256=system.fact_digest(),
        facts=tuple(fact_part(owner, fact) for owner, fact in system.facts()),
    )  # fmt: skip


def violation_parts(verdict: Verdict) -> tuple[ViolationPart, ...]:
    """The violations of a verdict as parts of a document."""
    return tuple(
        ViolationPart(
            code=v.code,
            message=v.message,
            chip=v.chip,
            cycle=v.cycle,
            first=v.first,
            second=v.second,
            where=v.where,
        )
        for v in verdict.violations
    )


def proof_part(proof: Proof) -> ProofPart:
    """Both verdicts on one timetable as a part of a document."""
    return ProofPart(
        kind=proof.kind.label(), sha256=proof.sha256, rules_clean=proof.verdict.clean,
        violations_total=proof.verdict.total, violations=violation_parts(proof.verdict), rows=proof.verdict.rows,
        chips=proof.verdict.chips, dataflow_equal=proof.dataflow_equal, dataflow_stated=proof.stated,
        dataflow_found=proof.found, cached=proof.cached, wall_compile_s=proof.compile_s, wall_verify_s=proof.verify_s,
        wall_dataflow_s=proof.dataflow_s,
    )  # fmt: skip


def violation_lines(proof: Proof, shown: int = SHOWN) -> list[str]:
    """What is wrong with a timetable, a line each."""
    verdict = proof.verdict
    lines = [str(v) for v in verdict.violations[:shown]]
    if verdict.total > shown:
        lines.append(f"... and {verdict.total - shown:,} more")
    if verdict.clean and not proof.dataflow_equal:
        lines.append(
            f"V141: the rows of {proof.kind.label()} give the dataflow digest {proof.found}, the graph {proof.stated}"
        )
    return lines


def tell_rejected(no: Rejected, proofs: list[Proof], terminal: Terminal) -> None:
    """Says which rules a program breaks; nothing was executed."""
    if terminal.json:
        parts = tuple(proof_part(p) for p in proofs)
        terminal.document(encode(RejectedDocument(**header(sys.argv[1:]), proofs=parts)))
        return
    terminal.line(f"verdict: NOT CLEAN, {no.proof.kind.label()} is not executed")
    for line in violation_lines(no.proof):
        terminal.line(line)
    terminal.note("`ticktrue explain CODE` says what a rule means")
