# Words of frames, read eight and sixteen bytes at a time. A byte that may not stand in a word, and so
# ends it, is a space, a control byte or DEL.

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    #define HEADWATER_EACH UINT64_C(0x0101010101010101)
    /* Half of the longest line between servers, which carries a subject and a reply. */
    #define HEADWATER_WORD_MAX (32 << 10)
    typedef unsigned char headwater_sixteen __attribute__((vector_size(16)));

    /* The first byte is the lowest one, on every machine. */
    static inline uint64_t headwater_eight(const unsigned char *text) {
        uint64_t eight;
        memcpy(&eight, text, 8);
    #if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
        eight = __builtin_bswap64(eight);
    #endif
        return eight;
    }

    /* The highest bit of each byte that ends a word; bytes above the first such one may be marked,
       too. One below 33 borrows; DEL becomes zero by exclusive or, and borrows as well. */
    static inline uint64_t headwater_ends(uint64_t eight) {
        uint64_t other = eight ^ (0x7F * HEADWATER_EACH);
        return (((eight - 0x21 * HEADWATER_EACH) & ~eight) | ((other - HEADWATER_EACH) & ~other))
            & (0x80 * HEADWATER_EACH);
    }

    static inline headwater_sixteen headwater_ends16(const unsigned char *text) {
        headwater_sixteen some;
        memcpy(&some, text, 16);
        return (headwater_sixteen)((some <= 32) | (some == 127));
    }

    static inline int headwater_is_clean(const unsigned char *text, Py_ssize_t n) {
        headwater_sixteen found;
        uint64_t halves[2];
        Py_ssize_t i;
        if (n > HEADWATER_WORD_MAX)
            return 0;
        if (n < 8) {
            for (i = 0; i < n; i++)
                if (text[i] <= 32 || text[i] == 127)
                    return 0;
            return 1;
        }
        /* The last bytes may overlap those before. */
        if (n < 16)
            return !(headwater_ends(headwater_eight(text))
                | headwater_ends(headwater_eight(text + n - 8)));
        found = headwater_ends16(text + n - 16);
        for (i = 0; i + 16 < n; i += 16)
            found |= headwater_ends16(text + i);
        memcpy(halves, &found, 16);
        return !(halves[0] | halves[1]);
    }

    static inline Py_ssize_t headwater_word_end(
        const unsigned char *line, Py_ssize_t i, Py_ssize_t n
    ) {
        uint64_t ends;
        for (; i + 8 <= n; i += 8) {
            ends = headwater_ends(headwater_eight(line + i));
            if (ends)
                return i + (__builtin_ctzll(ends) >> 3);
        }
        /* Fewer than eight are left: zeros, which end a word, are shifted in behind them. */
        if (i < n && n >= 8)
            return i + (__builtin_ctzll(
                headwater_ends(headwater_eight(line + n - 8) >> (8 * (8 - (n - i))))) >> 3);
        while (i < n && line[i] > 32 && line[i] != 127)
            i++;
        return i;
    }
    """
    # Whether a text may stand in a frame: nothing in it ends a word, and it is not too long.
    bint is_clean "headwater_is_clean"(const unsigned char* text, Py_ssize_t n) noexcept nogil
    # Where the word of a line that goes on at `i` ends: `n`, the line's own end, at most.
    Py_ssize_t word_end "headwater_word_end"(const unsigned char* line, Py_ssize_t i, Py_ssize_t n) noexcept nogil
    Py_ssize_t WORD_BYTES_MAX "HEADWATER_WORD_MAX"
