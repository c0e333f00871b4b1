# Pieces of JSON texts (RFC 8259), read eight bytes at a time. Each function stays below `end`; NULL
# says that the text is not JSON, or something that is left to another parser.

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    #define HEADWATER_ONES UINT64_C(0x0101010101010101)
    #define HEADWATER_TOPS UINT64_C(0x8080808080808080)

    /* The first byte is the lowest one, on every machine. */
    static inline uint64_t headwater_word(const char *at) {
        uint64_t word;
        memcpy(&word, at, 8);
    #if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
        word = __builtin_bswap64(word);
    #endif
        return word;
    }

    static inline uint64_t headwater_byte_is(uint64_t word, unsigned char byte) {
        word ^= byte * HEADWATER_ONES;
        return (word - HEADWATER_ONES) & ~word & HEADWATER_TOPS;
    }

    static inline int headwater_same(const char *one, const char *other, Py_ssize_t size) {
        Py_ssize_t at;
        if (size < 8) {
            for (at = 0; at < size; at++)
                if (one[at] != other[at])
                    return 0;
            return 1;
        }
        for (at = 0; at + 8 < size; at += 8)
            if (headwater_word(one + at) != headwater_word(other + at))
                return 0;
        /* The last eight bytes may overlap those before. */
        return headwater_word(one + size - 8) == headwater_word(other + size - 8);
    }

    static inline const char *headwater_skip_space(const char *at, const char *end) {
        while (at < end && (*at == ' ' || *at == '\\n' || *at == '\\r' || *at == '\\t'))
            at++;
        return at;
    }

    /* Bytes of the UTF-8 character at `at`; 0 when there is none (RFC 3629). */
    static inline int headwater_character(const char *text, const char *end) {
        const unsigned char *at = (const unsigned char *)text;
        Py_ssize_t left = end - text;
        if (at[0] < 0x80)
            return 1;
        if (at[0] < 0xC2 || at[0] > 0xF4 || left < 2 || (at[1] & 0xC0) != 0x80)
            return 0;
        if (at[0] < 0xE0)
            return 2;
        if (left < 3 || (at[2] & 0xC0) != 0x80)
            return 0;
        if (at[0] < 0xF0)
            return (at[0] == 0xE0 && at[1] < 0xA0) || (at[0] == 0xED && at[1] > 0x9F) ? 0 : 3;
        if (left < 4 || (at[3] & 0xC0) != 0x80)
            return 0;
        return (at[0] == 0xF0 && at[1] < 0x90) || (at[0] == 0xF4 && at[1] > 0x8F) ? 0 : 4;
    }

    /* The quote that ends the string whose first character is at `at`. Escapes are taken when
       `escapes` says so, but none of \\\\u. */
    static inline const char *headwater_string_end(const char *at, const char *end, int escapes) {
        uint64_t word, found;
        int size;
        for (;;) {
            while (end - at >= 8) {
                word = headwater_word(at);
                found = headwater_byte_is(word, '"') | headwater_byte_is(word, '\\\\')
                    | (((word - 0x20 * HEADWATER_ONES) | word) & HEADWATER_TOPS);
                if (found) {
                    at += __builtin_ctzll(found) >> 3;
                    break;
                }
                at += 8;
            }
            if (at >= end)
                return NULL;
            if (*at == '"')
                return at;
            if (*at == '\\\\') {
                if (!escapes || end - at < 2 || at[1] == 0 || !strchr("\\"\\\\/bfnrt", at[1]))
                    return NULL;
                at += 2;
                continue;
            }
            if ((unsigned char)*at < 0x20)
                return NULL;
            size = headwater_character(at, end);
            if (!size)
                return NULL;
            at += size;
        }
    }

    static inline const char *headwater_digits(
        const char *at, const char *end, uint64_t *value, int *count
    ) {
        uint64_t word;
        const char *first = at;
        while (end - at >= 8) {
            word = headwater_word(at);
            if (((word & (0xF0 * HEADWATER_ONES))
                | (((word + 0x06 * HEADWATER_ONES) & (0xF0 * HEADWATER_ONES)) >> 4))
                    != 0x33 * HEADWATER_ONES)
                break;
            word = (word & (0x0F * HEADWATER_ONES)) * 2561 >> 8;
            word = (word & UINT64_C(0x00FF00FF00FF00FF)) * 6553601 >> 16;
            word = (word & UINT64_C(0x0000FFFF0000FFFF)) * UINT64_C(42949672960001) >> 32;
            *value = *value * 100000000 + word;
            at += 8;
        }
        while (at < end && *at >= '0' && *at <= '9')
            *value = *value * 10 + (uint64_t)(*at++ - '0');
        *count += at - first > 1000000 ? 1000000 : (int)(at - first);
        return at;
    }

    typedef struct {
        uint64_t digits;        /* all of them as one number; wrong above 19 */
        int count;              /* how many digits there are */
        int scale;              /* of them behind the point, less the exponent */
        int negative;
        int whole;              /* neither a point nor an exponent */
    } headwater_number;

    static inline const char *headwater_number_end(
        const char *at, const char *end, headwater_number *number
    ) {
        const char *first;
        uint64_t power = 0;
        int minus = 0, behind = 0, places = 0;
        memset(number, 0, sizeof *number);
        number->whole = 1;
        if (at < end && *at == '-') {
            number->negative = 1;
            at++;
        }
        first = at;
        at = headwater_digits(at, end, &number->digits, &number->count);
        if (at == first || (*first == '0' && at - first > 1))
            return NULL;
        if (at < end && *at == '.') {
            number->whole = 0;
            first = ++at;
            at = headwater_digits(at, end, &number->digits, &behind);
            if (at == first)
                return NULL;
            number->count += behind;
            number->scale = behind;
        }
        if (at < end && (*at == 'e' || *at == 'E')) {
            number->whole = 0;
            at++;
            if (at < end && (*at == '-' || *at == '+'))
                minus = *at++ == '-';
            at = headwater_digits(at, end, &power, &places);
            if (places == 0 || places > 4)
                return NULL;
            number->scale -= minus ? -(int)power : (int)power;
        }
        return at;
    }

    /* The nearest double, where two exact ones make it (Clinger 1990); 0: ask another parser. */
    static inline int headwater_exact(const headwater_number *number, double *value) {
        static const double powers[] = {
            1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
            1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22
        };
        if (number->count > 18 || number->digits > (UINT64_C(1) << 53)
            || number->scale > 22 || number->scale < -22)
            return 0;
        *value = (double)number->digits;
        if (number->scale > 0)
            *value /= powers[number->scale];
        else
            *value *= powers[-number->scale];
        if (number->negative)
            *value = -*value;
        return 1;
    }

    /* The double of any number; 0 when it is too large. The text must go on behind the number. */
    static inline int headwater_double(
        const char *at, const headwater_number *number, double *value
    ) {
        char *end;
        if (headwater_exact(number, value))
            return 1;
        *value = PyOS_string_to_double(at, &end, NULL);
        if (*value == -1.0 && PyErr_Occurred()) {
            PyErr_Clear();
            return 0;
        }
        return *value - *value == 0;
    }
    """
    ctypedef struct Number "headwater_number":
        unsigned long long digits
        int count
        int scale
        int negative
        int whole

    bint same "headwater_same"(const char* one, const char* other, Py_ssize_t size) noexcept nogil
    const char* skip_space "headwater_skip_space"(const char* at, const char* end) noexcept nogil
    const char* string_end "headwater_string_end"(const char* at, const char* end, bint escapes) noexcept nogil
    bint double_of "headwater_double"(const char* at, const Number* number, double* value) noexcept
    const char* number_end "headwater_number_end"(const char* at, const char* end, Number* number) noexcept nogil
