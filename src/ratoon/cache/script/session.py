"""`ScriptSession`: a cache script carried out on a real `CacheManager`, checked after every operation."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass

from ratoon.cache.events import BlocksEvicted, BlocksStored, CacheEvent, CacheReset
from ratoon.cache.invariants import check_invariants
from ratoon.cache.manager import CacheManager
from ratoon.cache.script.operations import (
    Admit,
    Append,
    CacheScript,
    Compute,
    Draft,
    Free,
    Operation,
    Preempt,
    Reset,
    Resume,
    State,
    Verify,
    name_of,
)
from ratoon.errors import CacheScriptError
from ratoon.identity.digest import digest, encode
from ratoon.identity.hash_chain import HashChain

Line = dict[str, object]
"""What one operation did, ready for JSON."""


class _ImpossibleError(Exception):
    """The operation contradicts where a request stands."""


@dataclass(slots=True)
class _Request:
    """`is_running` while it holds blocks. Drafts have slots after the known tokens."""

    number: int
    chain: HashChain
    is_running: bool = True
    drafts: tuple[int, ...] = ()


class ScriptSession:
    """One run of a script; sole writer of its requests."""

    def __init__(self, script: CacheScript) -> None:
        self._operations = script.operations
        self._block_size = script.block_size
        self._root = digest(encode(("ratoon cache script", script.block_size)))
        self._requests: dict[str, _Request] = {}
        self._num_admitted = 0
        self._cache = CacheManager(
            script.groups,
            num_blocks=script.num_blocks,
            block_size=script.block_size,
            share_in_flight=script.share_in_flight,
        )
        self._events = self._cache.events.subscribe()

    def run(self) -> Iterator[Line]:
        """Carry out one operation after the other and yield a line for each.

        Raises `CacheScriptError` at an operation that is impossible where it stands; those before it are
        done.
        """
        for number, operation in enumerate(self._operations, 1):
            try:
                line = self._perform(operation)
            except _ImpossibleError as error:
                raise CacheScriptError(
                    f"Operation {number} ({name_of(operation)}) is impossible: {error}."
                ) from None
            check_invariants(self._cache)
            events = [entry for event in self._events.read().events for entry in _entries(event)]
            yield {"op": name_of(operation), **line, "events": events}

    def _perform(self, operation: Operation) -> Line:
        match operation:
            case Admit():
                return self._admit(operation)
            case Compute():
                return self._compute(operation)
            case Append():
                return self._append(operation)
            case Draft():
                return self._draft(operation)
            case Verify():
                return self._verify(operation)
            case Preempt():
                return self._preempt(operation)
            case Resume():
                return self._resume(operation)
            case Free():
                return self._free(operation)
            case Reset():
                return self._reset()
            case State():
                return self._state()

    def _admit(self, operation: Admit) -> Line:
        name = operation.request
        if name in self._requests:
            raise _ImpossibleError(f"{name} was admitted before and is not free yet")
        chain = HashChain(self._root, self._block_size, operation.extra_keys, operation.tokens)
        request = _Request(self._num_admitted, chain)
        num_cached = self._enter(request, preempted=False)
        if num_cached is not None:
            self._num_admitted += 1
            self._requests[name] = request
        return self._admission(name, request, num_cached)

    def _resume(self, operation: Resume) -> Line:
        request = self._find(operation.request, running=False)
        num_cached = self._enter(request, preempted=True)
        request.is_running = num_cached is not None
        return self._admission(operation.request, request, num_cached)

    def _enter(self, request: _Request, *, preempted: bool) -> int | None:
        """Match and reserve for all known tokens; return how many are cached, or None for want of blocks."""
        num_known = request.chain.num_tokens
        match = self._cache.match(request.chain, num_known)
        if not self._cache.reserve(request.number, request.chain, num_known, match):
            return None
        self._cache.stats.record_query(num_known, preempted=preempted)
        self._cache.stats.record_hit(match.num_cached_tokens, preempted=preempted)
        return match.num_cached_tokens

    def _admission(self, name: str, request: _Request, num_cached: int | None) -> Line:
        admitted = num_cached is not None
        tables = self._cache.block_tables(request.number) if admitted else ((),) * len(self._cache.groups)
        return {
            "request": name,
            "admitted": admitted,
            "cached_tokens": num_cached or 0,
            "block_tables": tables,
        }

    def _compute(self, operation: Compute) -> Line:
        name = operation.request
        request = self._find(name)
        self._refuse_drafts(name, request)
        chain = request.chain
        start = self._num_computed(request)
        num_left = chain.num_tokens - start
        if operation.num_tokens is not None and operation.num_tokens > num_left:
            raise _ImpossibleError(f"{name} has {num_left} known tokens left to compute")
        if self._cache.is_sharing and num_left > 1:
            match = self._cache.match(chain, chain.num_tokens)
            rematched = self._cache.reserve(request.number, chain, chain.num_tokens, match)
            assert rematched, "an exchange of blocks needs no further ones"
        num_cached = self._num_computed(request) - start
        self._cache.stats.record_hit(num_cached)
        num_left -= num_cached
        num_run = num_left if operation.num_tokens is None else min(operation.num_tokens, num_left)
        self._cache.commit(request.number, start + num_cached + num_run)
        return {
            "request": name,
            "cached_tokens": num_cached,
            "computed_tokens": num_run,
            **self._progress(request),
        }

    def _append(self, operation: Append) -> Line:
        request = self._find(operation.request)
        self._refuse_drafts(operation.request, request)
        reserved = self._extend(request, operation.tokens)
        if reserved:
            request.chain.append(operation.tokens)
        return {"request": operation.request, "reserved": reserved, **self._progress(request)}

    def _draft(self, operation: Draft) -> Line:
        request = self._find(operation.request)
        self._refuse_drafts(operation.request, request)
        reserved = self._extend(request, operation.tokens)
        if reserved:
            request.drafts = operation.tokens
        return {"request": operation.request, "reserved": reserved, **self._progress(request)}

    def _verify(self, operation: Verify) -> Line:
        name, num_accepted = operation.request, operation.accepted
        request = self._find(name)
        if not request.drafts or num_accepted > len(request.drafts):
            raise _ImpossibleError(f"{name} has {len(request.drafts)} drafts to verify")
        request.chain.append(request.drafts[:num_accepted])
        request.drafts = ()
        self._cache.commit(request.number, request.chain.num_tokens)
        return {"request": name, "accepted_tokens": num_accepted, **self._progress(request)}

    def _preempt(self, operation: Preempt) -> Line:
        request = self._find(operation.request)
        self._cache.release(request.number)
        request.is_running = False
        request.drafts = ()
        return {"request": operation.request}

    def _free(self, operation: Free) -> Line:
        request = self._requests.get(operation.request)
        if request is None:
            raise _ImpossibleError(f"there is no request {operation.request}")
        if request.is_running:
            self._cache.release(request.number)
        del self._requests[operation.request]
        return {"request": operation.request}

    def _reset(self) -> Line:
        report = self._cache.reset()
        return {"epoch": report.epoch, "dropped_blocks": report.num_dropped_blocks}

    def _state(self) -> Line:
        pool = self._cache.pool
        return {
            "free_queue": list(pool.free_queue()),
            "ref_counts": {block_id: refs for block_id, refs in enumerate(pool.ref_counts) if refs},
            "keyed_blocks": pool.keyed_blocks(),
            "num_keys": pool.num_keys,
            "stats": asdict(self._cache.stats),
        }

    def _find(self, name: str, *, running: bool = True) -> _Request:
        request = self._requests.get(name)
        if request is None:
            raise _ImpossibleError(f"there is no request {name}")
        if request.is_running != running:
            raise _ImpossibleError(f"{name} is {'running' if request.is_running else 'preempted'}")
        return request

    def _refuse_drafts(self, name: str, request: _Request) -> None:
        if request.drafts:
            raise _ImpossibleError(f"{name} has drafts that are not verified yet")

    def _extend(self, request: _Request, tokens: tuple[int, ...]) -> bool:
        return self._cache.reserve(request.number, request.chain, request.chain.num_tokens + len(tokens))

    def _num_computed(self, request: _Request) -> int:
        return self._cache.requests[request.number].num_computed

    def _progress(self, request: _Request) -> Line:
        return {
            "num_known": request.chain.num_tokens,
            "num_computed": self._num_computed(request),
            "block_tables": self._cache.block_tables(request.number),
        }


def _entries(event: CacheEvent) -> Iterator[Line]:
    """Spell out an event, one entry per block."""
    match event:
        case BlocksStored():
            for block_id, block_hash in zip(event.block_ids, event.block_hashes, strict=True):
                yield _entry("stored", block_id, event.group, block_hash)
        case BlocksEvicted():
            for block_id, group, block_hash in zip(
                event.block_ids, event.groups, event.block_hashes, strict=True
            ):
                yield _entry("evicted", block_id, group, block_hash)
        case CacheReset():
            yield {"event": "reset", "epoch": event.epoch, "num_dropped_blocks": event.num_dropped_blocks}


def _entry(kind: str, block_id: int, group: int, block_hash: bytes) -> Line:
    return {"event": kind, "block_id": block_id, "group": group, "block_hash": block_hash.hex()}
