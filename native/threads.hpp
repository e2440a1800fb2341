// The pool of threads that all kernels of one process share.
//
// A block of the model is one parallel region: every thread runs it whole and meets the others at the end of
// each shared loop. Between regions workers spin for some tens of microseconds, as long as Python needs to
// come with the next block, and then sleep. The calling thread is one of the pool, so no more threads compute
// than were asked for.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "memory.hpp"

namespace ratoon {

class Pool;

// One thread's view of a parallel region.
class Worker {
public:
    Worker(Pool& pool, int index) : pool_(pool), index_(index) {}

    // Run body(i) for i in [0, count) and wait until all are done. Every thread of the region must call this
    // with the same count. Each begins with a range of its own, so that it reads weights in the order in
    // which they lie, and then helps the others with theirs.
    template <class Body>
    void share(std::int64_t count, Body&& body);

    // Memory of this thread, for the duration of one body.
    std::uint8_t* scratch() const;

private:
    Pool& pool_;
    int index_;
};

class Pool {
public:
    explicit Pool(int num_threads);
    ~Pool();
    Pool(const Pool&) = delete;
    Pool& operator=(const Pool&) = delete;

    int size() const { return static_cast<int>(scratch_.size()); }

    // Give every thread at least so much scratch. Not during a region.
    void reserve_scratch(std::size_t bytes) {
        for (Buffer& buffer : scratch_) buffer.reserve(bytes);
    }

    // Run region(worker) on all threads and return when all have finished. Regions must not throw.
    template <class Region>
    void run(Region&& region) {
        if (size() > 1) {
            region_ = [&region](Worker& worker) { region(worker); };
            start();
        }
        Worker worker(*this, 0);
        region(worker);
        if (size() > 1) meet();
    }

private:
    friend class Worker;

    void start();
    void stop();
    void meet();  // wait for all threads
    void work(int index);

    std::vector<Buffer> scratch_;
    std::vector<std::thread> threads_;
    std::function<void(Worker&)> region_;
    bool stopping_ = false;
    // On lines of their own, since each is polled or counted up by several threads.
    alignas(64) std::atomic<std::uint32_t> regions_{0};   // started so far
    alignas(64) std::atomic<std::uint32_t> meetings_{0};  // completed so far
    alignas(64) std::atomic<int> missing_{0};             // threads that the next meeting waits for

    struct alignas(64) Counter {
        std::atomic<std::int64_t> taken{0};
    };
    std::vector<Counter>
        counters_;  // items taken from each thread's range of the shared loop that is running
};

template <class Body>
void Worker::share(std::int64_t count, Body&& body) {
    if (pool_.size() == 1) {
        for (std::int64_t i = 0; i < count; ++i) body(i);
        return;
    }
    const std::int64_t threads = pool_.size();
    for (std::int64_t t = 0; t < threads; ++t) {
        const std::int64_t owner = (index_ + t) % threads, end = (owner + 1) * count / threads,
                           begin = owner * count / threads;
        std::atomic<std::int64_t>& taken = pool_.counters_[static_cast<std::size_t>(owner)].taken;
        if (begin + taken.load(std::memory_order_relaxed) >= end) continue;
        for (std::int64_t i; (i = begin + taken.fetch_add(1, std::memory_order_relaxed)) < end;) body(i);
    }
    pool_.meet();
}

inline std::uint8_t* Worker::scratch() const {
    return pool_.scratch_[static_cast<std::size_t>(index_)].data();
}

}  // namespace ratoon
