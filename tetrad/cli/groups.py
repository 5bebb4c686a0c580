"""Command line, groups: `run --help` and `chat --help` under titles, in the order people look.

Receives the options of a command; writes those of a group together. An option that no group names
comes last, which a test does not let happen.
"""

from __future__ import annotations

import click

GROUPS = {  # title: names of options, in order
    "Model": ("file", "repo", "repo_file", "hf_token", "offline", "quantize", "keys"),
    "Server": ("host", "api_key"),
    "Prompt": (
        "prompt", "source", "system", "system_file", "conversation", "single_turn", "escape",
        "template", "template_file", "variables",
    ),
    "Reasoning": ("reasoning", "reasoning_budget", "hide_thinking"),
    "Length and shape of the answer": (
        "predict", "stop", "ignore_eos", "grammar", "grammar_file", "schema", "schema_file",
        "format",
    ),
    "Sampling": (
        "temperature", "top_k", "top_p", "min_p", "seed", "samplers", "sampler_letters",
        "top_n_sigma", "typical_p", "xtc_probability", "xtc_threshold", "dynatemp_range",
        "dynatemp_exponent", "mirostat", "mirostat_tau", "mirostat_eta", "bias",
    ),
    "Against repetition": (
        "repeat_penalty", "repeat_last_n", "presence_penalty", "frequency_penalty",
        "dry_multiplier", "dry_base", "dry_allowed_length", "dry_penalty_last_n", "breakers",
    ),
    "Context": (
        "context", "shift", "keep", "kind_k", "kind_v", "rope_scaling", "rope_scale",
        "rope_freq_scale", "rope_freq_base", "yarn_orig_ctx", "yarn_ext_factor",
        "yarn_attn_factor", "yarn_beta_fast", "yarn_beta_slow",
    ),
    "Speed": ("threads", "threads_batch", "batch", "ubatch", "speculate", "spec_type",
              "draft_file", "draft_repo", "draft_min", "draft_p_min"),
    "Output": (
        "verbose", "wordwrap", "display_prompt", "verbose_prompt", "warmup", "help",
    ),
}  # fmt: skip


class GroupedHelp(click.Command):
    """A command whose help has groups."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        shown = {
            # click has changed what it calls its own
            "help" if {*param.opts} & {*ctx.help_option_names} else param.name: line
            for param in self.get_params(ctx)
            if isinstance(param, click.Option) and (line := param.get_help_record(ctx)) is not None
        }
        named = {name for names in GROUPS.values() for name in names}
        others = tuple(name for name in shown if name is not None and name not in named)
        for title, names in (GROUPS | {"Others": others}).items():
            lines = [shown[name] for name in names if name in shown]
            if lines:
                with formatter.section(title):
                    formatter.write_dl(lines)
