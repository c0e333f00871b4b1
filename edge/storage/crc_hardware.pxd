# CRC-32C by the processor's instruction, where it was compiled for one that may have it.
cdef extern from *:
    """
    #if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
    #include <stdint.h>
    #include <string.h>
    #include <nmmintrin.h>
    static int headwater_crc_supported(void) { return __builtin_cpu_supports("sse4.2"); }
    __attribute__((target("sse4.2")))
    static unsigned int headwater_crc(unsigned int crc, const unsigned char *p, Py_ssize_t n) {
        uint64_t c = crc, w;
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
