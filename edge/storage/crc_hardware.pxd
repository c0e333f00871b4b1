# CRC-32C by the processor's instruction, where it was compiled for one that may have it.
#
# The instruction has a latency of three cycles and one can begin in each, so long data is done as
# three lanes of 168 bytes. Checksums are joined as in "Fast CRC computation for generic polynomials
# using PCLMULQDQ" (Intel, 2009): K1 is x^(8*168-33), K2 x^(16*168-33), reflected, modulo the
# polynomial; multiplying by it stands for as many bytes of zeros.
cdef extern from *:
    """
    #if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
    #include <stdint.h>
    #include <string.h>
    #include <nmmintrin.h>
    #include <wmmintrin.h>
    #define HEADWATER_LANE 168
    #define HEADWATER_K1 0x1b3d8f29
    #define HEADWATER_K2 0xa60ce07b
    static int headwater_crc_supported(void) {
        return __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul");
    }
    __attribute__((target("sse4.2,pclmul")))
    static uint64_t headwater_times(uint64_t crc, uint32_t k) {
        return _mm_cvtsi128_si64(
            _mm_clmulepi64_si128(_mm_cvtsi64_si128(crc), _mm_cvtsi32_si128(k), 0));
    }
    __attribute__((target("sse4.2,pclmul")))
    static unsigned int headwater_crc(unsigned int crc, const unsigned char *p, Py_ssize_t n) {
        uint64_t c = crc, w;
        for (; n >= 3 * HEADWATER_LANE; n -= 3 * HEADWATER_LANE, p += 2 * HEADWATER_LANE) {
            uint64_t c1 = 0, c2 = 0, w1, w2;
            for (const unsigned char *end = p + HEADWATER_LANE; p < end; p += 8) {
                memcpy(&w, p, 8);
                memcpy(&w1, p + HEADWATER_LANE, 8);
                memcpy(&w2, p + 2 * HEADWATER_LANE, 8);
                c = _mm_crc32_u64(c, w);
                c1 = _mm_crc32_u64(c1, w1);
                c2 = _mm_crc32_u64(c2, w2);
            }
            w = headwater_times(c, HEADWATER_K2) ^ headwater_times(c1, HEADWATER_K1);
            c = _mm_crc32_u64(0, w) ^ c2;
        }
        for (; n >= 8; n -= 8, p += 8) { memcpy(&w, p, 8); c = _mm_crc32_u64(c, w); }
        for (; n > 0; n--, p++) c = _mm_crc32_u8((unsigned int)c, *p);
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
