// The extension module `ratoon.identity._sha256`: the hashes of a chain of blocks in one call.
//
// SHA-256 (FIPS 180-4) with the processor's own instructions for it. hashlib computes as fast; what is saved
// is one call, and several byte strings, per block. Where the instructions are missing there is nothing here
// that hashlib could not do better, and `is_available` says so.
#include <nanobind/nanobind.h>

#include <cstdint>
#include <cstring>
#include <vector>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#define SHA_TARGET __attribute__((target("sha,sse4.1,ssse3")))
#endif

namespace nb = nanobind;
using namespace nb::literals;

namespace {

constexpr std::size_t kDigest = 32, kChunk = 64;

#if defined(__x86_64__)

bool has_sha() {
    // Asked once: a virtual machine may take microseconds to answer.
    static const bool answer = [] {
        unsigned a, b, c, d;
        if (!__get_cpuid(1, &a, &b, &c, &d)) return false;
        const bool sse = (c & bit_SSSE3) && (c & bit_SSE4_1);
        return sse && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & bit_SHA);
    }();
    return answer;
}

alignas(16) constexpr std::uint32_t kRounds[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

// Digest whole chunks, the message padded by the caller.
SHA_TARGET void sha256(const std::uint8_t* message, std::size_t chunks, std::uint8_t* out) {
    const __m128i big_endian = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
    const auto four = [](std::uint32_t a, std::uint32_t b, std::uint32_t c, std::uint32_t d) {
        return _mm_set_epi64x(std::int64_t{a} << 32 | b, std::int64_t{c} << 32 | d);
    };
    __m128i abef = four(0x6a09e667, 0xbb67ae85, 0x510e527f, 0x9b05688c);
    __m128i cdgh = four(0x3c6ef372, 0xa54ff53a, 0x1f83d9ab, 0x5be0cd19);
    for (std::size_t chunk = 0; chunk < chunks; ++chunk, message += kChunk) {
        const __m128i abef_before = abef, cdgh_before = cdgh;
        __m128i words[4];
        for (int i = 0; i < 4; ++i) {
            const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(message + 16 * i));
            words[i] = _mm_shuffle_epi8(bytes, big_endian);
        }
#pragma GCC unroll 16
        for (int i = 0; i < 16; ++i) {
            const __m128i* keys = reinterpret_cast<const __m128i*>(kRounds) + i;
            const __m128i now = _mm_add_epi32(words[i % 4], _mm_load_si128(keys));
            cdgh = _mm_sha256rnds2_epu32(cdgh, abef, now);
            abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(now, 0x0e));
            const __m128i middle = _mm_alignr_epi8(words[(i + 3) % 4], words[(i + 2) % 4], 4);
            const __m128i sum = _mm_add_epi32(_mm_sha256msg1_epu32(words[i % 4], words[(i + 1) % 4]), middle);
            words[i % 4] = _mm_sha256msg2_epu32(sum, words[(i + 3) % 4]);
        }
        abef = _mm_add_epi32(abef, abef_before);
        cdgh = _mm_add_epi32(cdgh, cdgh_before);
    }
    const __m128i feba = _mm_shuffle_epi32(abef, 0x1b), dchg = _mm_shuffle_epi32(cdgh, 0xb1);
    const __m128i first = _mm_blend_epi16(feba, dchg, 0xf0);  // d c b a
    const __m128i last = _mm_alignr_epi8(dchg, feba, 8);      // h g f e
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm_shuffle_epi8(first, big_endian));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 16), _mm_shuffle_epi8(last, big_endian));
}

#else

bool has_sha() { return false; }
void sha256(const std::uint8_t*, std::size_t, std::uint8_t*) {}

#endif

// hash[i] = SHA-256 of hash[i - 1], before, block i of `width` bytes, after; hash[-1] = parent.
nb::list hash_blocks(const nb::bytes& parent, const nb::bytes& before, const nb::bytes& blocks,
                     std::size_t width, const nb::bytes& after) {
    if (!has_sha()) throw nb::value_error("this processor has no instructions for SHA-256");
    if (parent.size() != kDigest || width == 0 || blocks.size() % width != 0)
        throw nb::value_error("there must be a digest, and whole blocks");
    const std::size_t length = kDigest + before.size() + width + after.size();
    const std::size_t chunks = (length + 1 + 8 + kChunk - 1) / kChunk, count = blocks.size() / width;
    std::vector<std::uint8_t> message(chunks * kChunk);
    std::uint8_t* const block = message.data() + kDigest + before.size();
    std::memcpy(message.data(), parent.c_str(), kDigest);
    std::memcpy(message.data() + kDigest, before.c_str(), before.size());
    std::memcpy(block + width, after.c_str(), after.size());
    message[length] = 0x80;
    for (int i = 0; i < 8; ++i)
        message[message.size() - 1 - i] = static_cast<std::uint8_t>(std::uint64_t{length} * 8 >> 8 * i);

    nb::list hashes = nb::steal<nb::list>(PyList_New(static_cast<Py_ssize_t>(count)));
    if (!hashes.is_valid()) throw nb::python_error();
    for (std::size_t i = 0; i < count; ++i) {
        std::memcpy(block, blocks.c_str() + i * width, width);
        sha256(message.data(), chunks, message.data());
        PyObject* hash = PyBytes_FromStringAndSize(reinterpret_cast<char*>(message.data()), kDigest);
        if (hash == nullptr) throw nb::python_error();
        PyList_SET_ITEM(hashes.ptr(), static_cast<Py_ssize_t>(i), hash);
    }
    return hashes;
}

}  // namespace

NB_MODULE(_sha256, m) {
    m.def("is_available", &has_sha);
    m.def("hash_blocks", &hash_blocks, "parent"_a, "before"_a, "blocks"_a, "width"_a, "after"_a);
}
