# CRC-32C by the processor's instruction, where it was compiled for one that may have it.
#
# The instruction has a latency of three cycles and one can begin in each, so long data is done as
# three lanes, of 168 bytes while there are as many, then of 40. Checksums are joined as in "Fast CRC
# computation for generic polynomials using PCLMULQDQ" (Intel, 2009): for lanes of L bytes K1 is
# x^(8*L-33), K2 x^(16*L-33), reflected, modulo the polynomial; multiplying by it stands for as many
# bytes of zeros.
cdef extern from *:
    """
    #if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
    #include <stdint.h>
    #include <string.h>
    #include <nmmintrin.h>
    #include <wmmintrin.h>
    #define HEADWATER_LONG 168
    #define HEADWATER_LONG_K1 0x1b3d8f29
    #define HEADWATER_LONG_K2 0xa60ce07b
    #define HEADWATER_SHORT 40
    #define HEADWATER_SHORT_K1 0x3da6d0cb
    #define HEADWATER_SHORT_K2 0x39d3b296
    static int headwater_crc_supported(void) {
        return __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul");
    }
    __attribute__((target("sse4.2,pclmul")))
    static uint64_t headwater_times(uint64_t crc, uint32_t k) {
        return _mm_cvtsi128_si64(
            _mm_clmulepi64_si128(_mm_cvtsi64_si128(crc), _mm_cvtsi32_si128(k), 0));
    }
    __attribute__((target("sse4.2,pclmul"))) inline
    static uint64_t headwater_lanes(
            uint64_t c, const unsigned char *p, int lane, uint32_t k1, uint32_t k2) {
        uint64_t c1 = 0, c2 = 0, w, w1, w2;
        for (const unsigned char *end = p + lane; p < end; p += 8) {
            memcpy(&w, p, 8);
            memcpy(&w1, p + lane, 8);
            memcpy(&w2, p + 2 * lane, 8);
            c = _mm_crc32_u64(c, w);
            c1 = _mm_crc32_u64(c1, w1);
            c2 = _mm_crc32_u64(c2, w2);
        }
        return _mm_crc32_u64(0, headwater_times(c, k2) ^ headwater_times(c1, k1)) ^ c2;
    }
    __attribute__((target("sse4.2,pclmul")))
    static unsigned int headwater_crc(unsigned int crc, const unsigned char *p, Py_ssize_t n) {
        uint64_t c = crc, w;
        uint32_t half;
        for (; n >= 3 * HEADWATER_LONG; n -= 3 * HEADWATER_LONG, p += 3 * HEADWATER_LONG)
            c = headwater_lanes(c, p, HEADWATER_LONG, HEADWATER_LONG_K1, HEADWATER_LONG_K2);
        for (; n >= 3 * HEADWATER_SHORT; n -= 3 * HEADWATER_SHORT, p += 3 * HEADWATER_SHORT)
            c = headwater_lanes(c, p, HEADWATER_SHORT, HEADWATER_SHORT_K1, HEADWATER_SHORT_K2);
        for (; n >= 8; n -= 8, p += 8) { memcpy(&w, p, 8); c = _mm_crc32_u64(c, w); }
        if (n >= 4) { memcpy(&half, p, 4); c = _mm_crc32_u32((uint32_t)c, half); n -= 4; p += 4; }
        for (; n > 0; n--, p++) c = _mm_crc32_u8((uint32_t)c, *p);
        return (unsigned int)c;
    }
    #else
    static int headwater_crc_supported(void) { return 0; }
    static unsigned int headwater_crc(unsigned int crc, const unsigned char *p, Py_ssize_t n) {
        (void)p; (void)n; return crc;
    }
    #endif
    """
    bint headwater_crc_supported() noexcept nogil
    unsigned int headwater_crc(unsigned int crc, const unsigned char* data, Py_ssize_t n) noexcept nogil
