// Memory aligned to cache lines, for weights and intermediate results.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace ratoon {

// A piece of uninitialised memory that only grows. Growing forgets the contents.
class Buffer {
public:
    Buffer() = default;
    explicit Buffer(std::size_t bytes) { reserve(bytes); }

    void reserve(std::size_t bytes) {
        if (bytes <= size_) return;
        constexpr std::size_t kHugePage = std::size_t{1} << 21;
        const std::size_t alignment = bytes >= kHugePage ? kHugePage : 64;
        const std::size_t rounded = (bytes + alignment - 1) / alignment * alignment;
        size_ = 0;
        memory_.reset();  // first, so that old and new are never held together
        memory_.reset(static_cast<std::uint8_t*>(std::aligned_alloc(alignment, rounded)));
        if (!memory_) throw std::bad_alloc();
        size_ = rounded;
#ifdef __linux__
        // Products stream through weights; with small pages they would miss the TLB once per 4 KiB.
        if (bytes >= kHugePage) madvise(memory_.get(), rounded, MADV_HUGEPAGE);
#endif
    }

    std::uint8_t* data() const { return memory_.get(); }
    template <class T>
    T* as() const {
        return reinterpret_cast<T*>(memory_.get());
    }

private:
    struct Free {
        void operator()(std::uint8_t* p) const { std::free(p); }
    };
    std::unique_ptr<std::uint8_t, Free> memory_;
    std::size_t size_ = 0;
};

// Memory for many objects of one lifetime, side by side: huge pages even for small ones. A chunk goes with
// the last that lies in it.
class Arena {
public:
    struct Allocation {
        std::shared_ptr<Buffer> chunk;
        std::uint8_t* data;
    };

    Allocation take(std::size_t bytes) {
        // Only reserved: the operating system gives what is written to.
        constexpr std::size_t kChunk = std::size_t{64} << 20;
        const std::size_t rounded = (bytes + 63) / 64 * 64;
        if (!chunk_ || used_ + rounded > size_) {
            const std::size_t size = rounded > kChunk ? rounded : kChunk;
            chunk_ = std::make_shared<Buffer>(size);
            size_ = size;
            used_ = 0;
        }
        used_ += rounded;
        return {chunk_, chunk_->data() + used_ - rounded};
    }

private:
    std::shared_ptr<Buffer> chunk_;
    std::size_t size_ = 0, used_ = 0;
};

}  // namespace ratoon
