"""What Hugging Face models tell about themselves: their trunk, their direction, their padding."""

from collections.abc import Mapping
from typing import Any

from torch import nn

from ruler.core.errors import LayerNotFoundError
from ruler.core.optional import load_optional
from ruler.embeddings.heads import HEAD_NAMES


def is_huggingface(model: nn.Module) -> bool:
    """Whether this is a transformers model, also one wrapped by an adapter library."""
    return hasattr(model, "base_model_prefix") and hasattr(model, "config")


def find_trunk(model: Any) -> tuple[str, nn.Module] | None:
    """The part whose last hidden state is the representation, with its name; None if a head must be found.

    That is the base model under a vocabulary head, and the model itself where it has no head. Running the
    trunk alone also saves the logits over the vocabulary, by far the largest tensor of a language model.

    Raises:
        LayerNotFoundError: An encoder-decoder with a vocabulary head, which has two candidates.
    """
    trunk = getattr(model, model.base_model_prefix, None)
    if model.get_output_embeddings() is not None:
        if trunk is None or getattr(model.config, "is_encoder_decoder", False):
            raise LayerNotFoundError(
                f"layer must be named for {type(model).__name__}, which has an encoder and a decoder. "
                "Name one, or embed model.get_encoder()."
            )
        return model.base_model_prefix, trunk
    has_head = any(name in HEAD_NAMES for name, _ in model.named_children())
    return None if trunk is not None or has_head else ("", model)


def is_causal(model: Any) -> bool:
    """Whether a token knows only those before it, so that the last token stands for the sequence."""
    if getattr(model.config, "is_decoder", False) or model.can_generate():
        return True
    auto = load_optional("transformers.models.auto.modeling_auto", "embedding a Hugging Face model")
    kind = model.config.model_type
    # encoders such as BERT can be set up as decoders, so they are in the first table too
    return kind in auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES and kind not in auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES


def predicts_next_token(model: Any) -> bool:
    """Whether labels, which are token ids, count one place further on, as in causal language models."""
    if not is_huggingface(model) or model.get_output_embeddings() is None:
        return False
    return is_causal(model) and not getattr(model.config, "is_encoder_decoder", False)


def padding_of(model: Any) -> Mapping[str, int]:
    """What fills up short sequences, by parameter of forward; 0 for parameters that are not named."""
    pad = getattr(model.config, "pad_token_id", None)
    return {} if pad is None else {"input_ids": int(pad)}
