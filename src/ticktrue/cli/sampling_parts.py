"""How tokens were chosen -> document parts and lines."""

from dataclasses import asdict

from ticktrue.cli.documents import LogprobPart, SamplingPart, TokenLogprobs
from ticktrue.cli.run_job import Answer, chooses
from ticktrue.generate import LogProb, Sampling


def sampling_part(sampling: Sampling) -> SamplingPart:
    """The settings as a part of a document."""
    return SamplingPart(sampler="host" if sampling.on_host else "chip", **asdict(sampling))


def sampling_words(sampling: Sampling) -> str:
    """The settings that differ from greedy, as the flags that give them again, and who chose."""
    plain, words = asdict(Sampling()), []
    for name, value in asdict(sampling).items():
        if value != plain[name] or (name == "seed" and sampling.temperature > 0):
            words.append(f"--{name.replace('_', '-')} {value}")
    place = "on the host, from the chips' logits" if sampling.on_host else "on the chips"
    return f"{' '.join(words) or 'greedy'}; chosen {place}"


def token_logprobs(answer: Answer) -> tuple[TokenLogprobs, ...] | None:
    """Log-probabilities of every token of the answer; None where they were not asked for."""
    if answer.sampling.logprobs is None:
        return None
    out = []
    for timed in answer.steps:
        drawn = timed.step.drawn
        if drawn.logprob is not None and chooses(timed.step, len(answer.prompt_ids)):
            top = tuple(_part(answer, x) for x in drawn.top)
            out.append(TokenLogprobs(chosen=_part(answer, drawn.logprob), top=top))
    return tuple(out)


def _part(answer: Answer, found: LogProb) -> LogprobPart:
    text = answer.found.model.tokenizer().decode([found.token])
    return LogprobPart(token_id=found.token, text=text, logprob=found.value)


def logprob_lines(answer: Answer) -> list[str]:
    """A line for each token of the answer: its log-probability, and the most likely ones."""
    lines = []
    for i, token in enumerate(token_logprobs(answer) or ()):
        top = ", ".join(f"{x.text!r} {x.logprob:.4f}" for x in token.top)
        head = "logprobs  " if i == 0 else " " * 10
        rest = f"  (of {top})" if top else ""
        lines.append(f"{head} {token.chosen.text!r} {token.chosen.logprob:.4f}{rest}")
    return lines
