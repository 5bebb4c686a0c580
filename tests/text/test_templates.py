"""Chat templates by name: what llama.cpp's own templates of these names give (its
chat_apply_template, recorded)."""

from __future__ import annotations

import pytest

from tetrad.core.errors import TemplateError
from tetrad.text.chat import ChatTemplate
from tetrad.text.templates import ALIASES, NAMED, named_template

TURNS = [("system", "SYS"), ("user", " U1 "), ("assistant", " A1 "), ("user", "U2")]
RECORDED = {
    "chatml": "<|im_start|>system\nSYS<|im_end|>\n<|im_start|>user\n U1 <|im_end|>\n"
    "<|im_start|>assistant\n A1 <|im_end|>\n<|im_start|>user\nU2<|im_end|>\n"
    "<|im_start|>assistant\n",
    "llama2": "[INST] SYS\n U1  [/INST] A1 </s>[INST] U2 [/INST]",
    "llama2-sys": "[INST] <<SYS>>\nSYS\n<</SYS>>\n\n U1  [/INST] A1 </s>[INST] U2 [/INST]",
    "llama3": "<|start_header_id|>system<|end_header_id|>\n\n"
    "SYS<|eot_id|><|start_header_id|>user<|end_header_id|>\n\n"
    "U1<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\nA1<|eot_id|>"
    "<|start_header_id|>user<|end_header_id|>\n\n"
    "U2<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
    "gemma": "<start_of_turn>user\nSYS\n\nU1<end_of_turn>\n<start_of_turn>model\nA1<end_of_turn>\n"
    "<start_of_turn>user\nU2<end_of_turn>\n<start_of_turn>model\n",
    "mistral-v1": " [INST] SYS\n\n U1  [/INST]  A1 </s> [INST] U2 [/INST]",
    "mistral-v3": "[INST] SYS\n\n U1 [/INST] A1</s>[INST] U2[/INST]",
    "mistral-v3-tekken": "[INST]SYS\n\n U1 [/INST] A1 </s>[INST]U2[/INST]",
    "mistral-v7": "[SYSTEM_PROMPT] SYS[/SYSTEM_PROMPT][INST]  U1 [/INST]  A1 </s>[INST] U2[/INST]",
    "zephyr": "<|system|>\nSYS<eos>\n<|user|>\n U1 <eos>\n<|assistant|>\n A1 <eos>\n<|user|>\n"
    "U2<eos>\n"
    "<|assistant|>\n",
    "vicuna": "SYS\n\nUSER:  U1 \nASSISTANT:  A1 </s>\nUSER: U2\nASSISTANT:",
    "vicuna-orca": "SYSTEM: SYS\nUSER:  U1 \nASSISTANT:  A1 </s>\nUSER: U2\nASSISTANT:",
    "phi3": "<|system|>\nSYS<|end|>\n<|user|>\n U1 <|end|>\n<|assistant|>\n A1 <|end|>\n"
    "<|user|>\nU2<|end|>\n<|assistant|>\n",
    "phi4": "<|im_start|>system<|im_sep|>SYS<|im_end|><|im_start|>user<|im_sep|> U1 "
    "<|im_end|><|im_start|>assistant"
    "<|im_sep|> A1 <|im_end|><|im_start|>user<|im_sep|>U2<|im_end|><|im_start|>assistant<|im_sep|>",
    "falcon3": "<|system|>\nSYS\n<|user|>\n U1 \n<|assistant|>\n A1 \n<|user|>\nU2\n"
    "<|assistant|>\n",
    "granite": "<|start_of_role|>system<|end_of_role|>SYS<|end_of_text|>\n"
    "<|start_of_role|>user<|end_of_role|> U1 "
    "<|end_of_text|>\n<|start_of_role|>assistant<|end_of_role|> A1 <|end_of_text|>\n"
    "<|start_of_role|>user<|end_of_role|>U2<|end_of_text|>\n"
    "<|start_of_role|>assistant<|end_of_role|>",
    "openchat": "SYS<|end_of_turn|>GPT4 Correct User:  U1 <|end_of_turn|>GPT4 Correct Assistant: "
    " A1 "
    "<|end_of_turn|>"
    "GPT4 Correct User: U2<|end_of_turn|>GPT4 Correct Assistant:",
    "deepseek": "SYS### Instruction:\n U1 \n### Response:\n A1 \n<|EOT|>\n### Instruction:\nU2\n"
    "### Response:\n",
    "command-r": "<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>SYS<|END_OF_TURN_TOKEN|>"
    "<|START_OF_TURN_TOKEN|><|USER_TOKEN|>U1<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>A1<|END_OF_TURN_TOKEN|>"
    "<|START_OF_TURN_TOKEN|><|USER_TOKEN|>U2<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>",
}


@pytest.mark.parametrize("name", NAMED)
def test_named_templates_write_what_was_recorded(name: str) -> None:
    template = ChatTemplate(named_template(name), "<bos>", "<eos>")
    messages = [{"role": role, "content": text} for role, text in TURNS]
    assert template.render(messages) == RECORDED[name]
    without = template.render(messages[1:], add_generation_prompt=False)
    assert "SYS" not in without and without + NAMED[name].ask == template.render(messages[1:])


def test_names_and_those_of_llama_cpp_python() -> None:
    assert all(named_template(name) == named_template(ALIASES[name]) for name in ALIASES)
    with pytest.raises(
        TemplateError,
        match="there is no chat template called 'nonsense'\n  hint: known: chatml, comm",
    ):
        named_template("nonsense")
