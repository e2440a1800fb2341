"""Wires all rooms together, from checkpoint to engine core.

Loading comes first and takes as long as the weights are large; building a core on what was loaded takes no
time. The only file that imports `device/`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType

from ratoon.cache.eviction.catalog import EVICTION_POLICIES
from ratoon.cache.manager import CacheManager
from ratoon.checkpoint.adapter_folder import AdapterFolder
from ratoon.checkpoint.checkpoint import Checkpoint
from ratoon.device.model.adapter import adapter_weights
from ratoon.device.model.decoder import Decoder
from ratoon.device.model.load_decoder import load_decoder
from ratoon.device.ops.protocol import KVLayout, Ops
from ratoon.device.ops.reference import ReferenceOps
from ratoon.device.runner.model_runner import LogitsObserver, ModelRunner
from ratoon.draft.draft_model import DraftModel
from ratoon.draft.drafter import Drafter
from ratoon.draft.prompt_lookup import PromptLookup
from ratoon.draft.speculation import Speculation
from ratoon.engine.adapters import AdapterStore, PreparedAdapter
from ratoon.engine.config import EngineConfig
from ratoon.engine.core import EngineCore
from ratoon.engine.cores import CoreClaim, usable_cores
from ratoon.engine.open_model import NGRAM, OpenModel, draft_config, open_draft, open_model, resolved
from ratoon.errors import InvalidParameterError
from ratoon.explain.recorded_cache import RecordedCache
from ratoon.explain.request_explainer import RequestExplainer
from ratoon.grammar.compiler import GrammarCompiler
from ratoon.identity.extra_keys import NO_EXTRAS, ExtraKeys
from ratoon.identity.fingerprint import ModelFingerprint
from ratoon.identity.hash_chain import HashChain
from ratoon.request.sampling_params import SamplingParams
from ratoon.sched.limits import Limits
from ratoon.sched.scheduler import Scheduler
from ratoon.spec.kv_budget import KVBudget
from ratoon.spec.model_spec import ModelSpec
from ratoon.text.chat_template import ChatTemplate, load_chat_template
from ratoon.text.load import load_tokenizer
from ratoon.text.tokenizer import Tokenizer
from ratoon.util.progress import Progress, no_progress

NO_ADAPTERS: Mapping[str, str | Path] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model in memory, with the pages that its KV is written to.

    `config` has every None replaced by what it stands for. `root` is what every chain begins with.
    `adapters` may be used with any engine that is built on the model. `given_template` was named in the place
    of the model's own. `draft` is the smaller model that guesses for this one, if `config` names one. `cores`
    are claimed for the threads of its ops. `grammars` compiles the forms that answers must have.
    """

    checkpoint: Checkpoint
    spec: ModelSpec
    budget: KVBudget
    config: EngineConfig
    tokenizer: Tokenizer
    decoder: Decoder
    ops_name: str
    root: bytes
    adapters: AdapterStore
    cores: CoreClaim
    grammars: GrammarCompiler
    given_template: ChatTemplate | None = None
    draft: "LoadedModel | None" = None

    def chain(self, token_ids: Iterable[int], extra_keys: ExtraKeys = NO_EXTRAS) -> HashChain:
        """Return a prompt's hash chain. Raises `InvalidParameterError` for ids outside the vocabulary."""
        tokens = list(token_ids)
        chain = HashChain(self.root, self.budget.block_size, extra_keys, tokens)
        self._check_token_id(max(tokens, default=0))
        return chain

    def chat_template(self) -> ChatTemplate:
        """Return the template for chat. Raises `ChatTemplateError` where there is none."""
        return self.given_template or load_chat_template(self.checkpoint, self.tokenizer)

    def check_params(self, params: SamplingParams) -> None:
        """Raise `InvalidParameterError` where the parameters name a token outside the vocabulary.

        Compiles the form that answers must have, which may take its time; raises `GrammarError` where that
        cannot be done.
        """
        for token_id in (*params.logit_bias, *params.stop_token_ids):
            self._check_token_id(token_id)
        if params.structured_outputs is not None:
            self.grammars.check(params.structured_outputs)

    def _check_token_id(self, token_id: int) -> None:
        if token_id >= self.spec.vocab_size:
            raise InvalidParameterError(
                f"Token id {token_id} is outside the model's vocabulary of {self.spec.vocab_size}."
            )


def load_model(
    model: str | Path,
    config: EngineConfig,
    progress: Progress = no_progress,
    *,
    adapters: Mapping[str, str | Path] = NO_ADAPTERS,
    chat_template: str | Path | None = None,
) -> LoadedModel:
    """Open a model and load it: tokenizer, adapters, weights, an empty pool. Raises some `RatoonError`.

    `adapters` are folders by name, `chat_template` is a file. What can be refused without the weights is
    refused before they are read.
    """
    cores = CoreClaim(config.threads or usable_cores())
    ops = make_ops(config, keeps_to_cores=cores.is_held)
    opened = open_model(model, progress)
    tokenizer = load_tokenizer(opened.checkpoint)
    template = None
    if chat_template is not None:
        template = load_chat_template(opened.checkpoint, tokenizer, chat_template)
    draft = open_draft(config, opened, tokenizer, progress)
    loaded = _load(opened, tokenizer, config, ops, cores, progress, adapters)
    if draft is None:
        return replace(loaded, given_template=template)
    guesser = _load(draft, tokenizer, draft_config(config), ops, cores, progress)
    return replace(loaded, given_template=template, draft=guesser)


def _load(
    opened: OpenModel,
    tokenizer: Tokenizer,
    config: EngineConfig,
    ops: Ops,
    cores: CoreClaim,
    progress: Progress,
    adapters: Mapping[str, str | Path] = NO_ADAPTERS,
) -> LoadedModel:
    spec, groups = opened.spec, opened.groups
    budget = opened.budget(config)
    config = resolved(config, spec, budget)
    assert config.max_model_len is not None, "resolved just now"
    spec = spec.for_length(config.max_model_len)
    store = AdapterStore(lambda folder: prepare_adapter(folder, spec, ops), config.adapter_bytes)
    for name, folder in adapters.items():
        store.load(name, folder)
    layout = KVLayout(
        num_blocks=budget.num_blocks,
        block_size=budget.block_size,
        num_slots=budget.num_slots,
        num_kv_heads=spec.num_kv_heads,
        head_dim=spec.head_dim,
        dtype=config.kv_cache_dtype,
    )
    assert layout.page_bytes == budget.page_bytes, "one formula sizes the pool and its pages"
    pages = ops.pages(layout)
    decoder = load_decoder(
        opened.checkpoint, spec, groups, ops, pages, num_positions=config.max_model_len, progress=progress
    )
    root = _fingerprint(replace(opened, spec=spec), config, ops).root()
    grammars = GrammarCompiler(opened.checkpoint.tokenizer_json, spec.vocab_size, tokenizer.eos_token_ids)
    return LoadedModel(
        opened.checkpoint, spec, budget, config, tokenizer, decoder, ops.name, root, store, cores, grammars
    )


def build_core(
    model: LoadedModel, config: EngineConfig | None = None, *, observe_logits: LogitsObserver | None = None
) -> EngineCore:
    """Build an engine with an empty cache on a loaded model.

    Several may be built on one model, to be used one after the other, since they write to the same pages.
    `config` may then differ in how requests are scheduled and cached, and have a smaller pool, but not in
    how KV is computed and stored.
    """
    config = model.config if config is None else config
    assert config.block_size == model.budget.block_size, "the pages were laid out when the model was loaded"
    assert config.max_model_len is not None, "made from the model's own configuration"
    assert config.max_model_len <= (model.config.max_model_len or 0), "the RoPE tables end at that length"
    limits = Limits(
        max_num_seqs=config.max_num_seqs,
        max_num_batched_tokens=config.max_num_batched_tokens,
        max_model_len=config.max_model_len,
    )
    cache = _cache(model, config, config.kv_cache_bytes, num_ghosts=config.explain_blocks)
    explainer = RequestExplainer(cache) if isinstance(cache, RecordedCache) else None
    scheduler = Scheduler(cache, limits, eos_token_ids=model.tokenizer.eos_token_ids, observer=explainer)
    return EngineCore(scheduler, _runner(model, observe_logits), _speculation(model, config), explainer)


def _speculation(model: LoadedModel, config: EngineConfig) -> Speculation | None:
    if config.speculative is None:
        return None
    drafter: Drafter = PromptLookup()
    if config.speculative != NGRAM:
        draft = model.draft
        assert draft is not None, "a draft model is loaded together with the model"
        drafter = DraftModel(
            _cache(draft, config, config.speculative_kv_cache_bytes),
            _runner(draft),
            root=draft.root,
            max_model_len=draft.config.max_model_len or 0,
            max_chunk=config.max_num_batched_tokens,
        )
    return Speculation(drafter, config.num_speculative_tokens)


def _cache(model: LoadedModel, config: EngineConfig, num_bytes: int, *, num_ghosts: int = 0) -> CacheManager:
    num_blocks = num_bytes // model.budget.page_bytes
    assert num_blocks <= model.budget.num_blocks, "the pages were allocated when the model was loaded"
    kind = partial(RecordedCache, num_ghosts=num_ghosts) if num_ghosts else CacheManager
    return kind(
        model.budget.groups,
        num_blocks=num_blocks,
        block_size=config.block_size,
        share_in_flight=config.share_in_flight,
        enable_prefix_caching=config.enable_prefix_caching,
        eviction=EVICTION_POLICIES[config.eviction],
        retention_percent=config.retention_percent,
    )


def _runner(model: LoadedModel, observe_logits: LogitsObserver | None = None) -> ModelRunner:
    return ModelRunner(
        model.decoder,
        num_groups=len(model.budget.groups),
        block_size=model.budget.block_size,
        find_adapter=model.adapters.weights_of,
        make_matcher=model.grammars.matcher,
        observe_logits=observe_logits,
    )


def prepare_adapter(folder: AdapterFolder, spec: ModelSpec, ops: Ops) -> PreparedAdapter:
    """Check an adapter against the model. Raises `CorruptCheckpointError` where it was made for another."""
    weights = adapter_weights(folder, spec)
    return PreparedAdapter(ops.adapter_bytes(weights), lambda: ops.adapter(weights))


def make_ops(config: EngineConfig, *, keeps_to_cores: bool = False) -> Ops:
    """Return the ops asked for. Raises `InvalidParameterError` where they were not built.

    `keeps_to_cores` says whether the cores were claimed for their threads.
    """
    if config.ops != "reference":
        try:
            from ratoon.device.ops.native import NativeOps  # not there without a compiler
        except ImportError as error:
            if config.ops == "native":
                raise InvalidParameterError(
                    "This installation has no native ops.",
                    hint="Install Ratoon again where a C++ compiler is present.",
                ) from error
        else:
            return NativeOps(config.threads or usable_cores(), keeps_to_cores=keeps_to_cores)
    return ReferenceOps()


def _fingerprint(model: OpenModel, config: EngineConfig, ops: Ops) -> ModelFingerprint:
    spec = model.spec
    return ModelFingerprint(
        weights_digest=model.checkpoint.digest,
        attention=astuple(replace(spec, layers=())),
        rope=tuple(astuple(layer) for layer in spec.layers),
        kv_dtype=config.kv_cache_dtype,
        kv_layout=str([group.layers for group in model.groups]),
        block_size=config.block_size,
        kernels_version=ops.numerics,
    )
