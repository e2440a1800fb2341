// Which keys and values a thread will need soon.
#pragma once

#include "kv_pages.hpp"

namespace ratoon::RATOON_ISA {

// The positions that some query of a unit sees.
INLINE Range visible_to(const AttentionCall& call, const Unit& unit) {
    Range visible = {__INT_MAX__, 0};
    for (int i = unit.first_query; i < unit.first_query + unit.num_queries; ++i) {
        visible = {smaller(visible.begin, call.query[i].first_visible), larger(visible.end, call.query[i].end)};
    }
    return visible;
}

// Walks through the strips in the order in which a thread reads them, one span ahead of it and
// from one item to the next. Pages lie far apart, which no hardware prefetcher foresees; prefetched in time,
// they arrive while the thread computes.
template <class T>
class ReadAhead {
public:
    INLINE ReadAhead(const AttentionCall& call, std::int64_t item) : call_(call), item_(item) {
        enter();
        for (int i = 0; i < kDistance; ++i) advance();
    }

    // The thread reads `strip`; which one will it read in a while? The same one, if there is none.
    INLINE KVPiece<T> after(const KVPiece<T>& strip) {
        if (at_ >= end_) return strip;
        const KVPiece<T> ahead = strip_in_place(KVHead<T>{call_, table_, kv_head_}, at_);
        advance();
        return ahead;
    }

private:
    static constexpr int kDistance = kSpan / kLanes;

    INLINE void enter() {
        at_ = end_ = 0;
        if (item_ >= call_.num_units) return;
        const Unit& unit = call_.units[item_];
        const Range visible = visible_to(call_, unit);
        at_ = larger(visible.begin, unit.first_span * kSpan) / kLanes * kLanes;
        end_ = smaller(visible.end, unit.end_span * kSpan);
        kv_head_ = unit.kv_head;
        table_ = call_.tables + call_.query[unit.first_query].sequence * call_.table_width;
    }

    INLINE void advance() {
        at_ += kLanes;
        if (at_ < end_) return;
        ++item_;
        enter();
    }

    const AttentionCall& call_;
    std::int64_t item_;
    const std::int32_t* table_ = nullptr;
    std::int64_t kv_head_ = 0;
    int at_ = 0, end_ = 0;
};

}  // namespace ratoon::RATOON_ISA
