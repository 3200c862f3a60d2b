/* Checking frames. This and its neighbours are the parts of EMLIO that were measured to pay in C.

   Every function is given its memory, checks each length and index, allocates nothing, and keeps no
   state but what the processor offers. The Python code does the same without this library, and is asked
   for the words whenever something is wrong here.

   Covers: CRC32C, frames of TFRecord. Does not cover: error texts, which ranges are asked for. */

#include "emlio_native.h"

#define EMLIO_ABI 8 /* of all files here */

EXPORTED uint32_t emlio_abi(void) { return EMLIO_ABI; }

/* ---- CRC32C -------------------------------------------------------------------------------------------------------- */

#define POLYNOMIAL 0x82F63B78u

static uint32_t tables[8][256];

__attribute__((constructor)) static void fill_tables(void) {
    for (uint32_t value = 0; value < 256; value++) {
        uint32_t crc = value;
        for (int bit = 0; bit < 8; bit++) crc = crc & 1 ? crc >> 1 ^ POLYNOMIAL : crc >> 1;
        tables[0][value] = crc;
    }
    for (int table = 1; table < 8; table++)
        for (uint32_t value = 0; value < 256; value++)
            tables[table][value] = tables[table - 1][value] >> 8 ^ tables[0][tables[table - 1][value] & 255];
}

/* All of these take and return the register, without the inversion at begin and end. */

static uint32_t crc_by_table(uint32_t crc, const uint8_t *data, size_t bytes) {
    while (bytes >= 8) {
        uint64_t word;
        memcpy(&word, data, 8);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
        word = __builtin_bswap64(word);
#endif
        word ^= crc;
        crc = 0;
        for (int place = 0; place < 8; place++) crc ^= tables[7 - place][word >> (8 * place) & 255];
        data += 8, bytes -= 8;
    }
    while (bytes--) crc = crc >> 8 ^ tables[0][(crc ^ *data++) & 255];
    return crc;
}

/* ---- joining: the CRC32C of A and B follows from that of each and the length of B ---- */

static uint32_t byte_powers[64]; /* x^(8 * 2^n) modulo the polynomial, reflected */

static uint32_t product(uint32_t a, uint32_t b) {
    uint32_t result = 0;
    for (; a; a <<= 1, b = b & 1 ? b >> 1 ^ POLYNOMIAL : b >> 1)
        if (a >> 31) result ^= b;
    return result;
}

__attribute__((constructor)) static void fill_byte_powers(void) {
    byte_powers[0] = 0x80000000u >> 8;
    for (int power = 1; power < 64; power++) byte_powers[power] = product(byte_powers[power - 1], byte_powers[power - 1]);
}

/* What a checksum is multiplied with where so many bytes come behind. */
static uint32_t over_bytes(uint64_t bytes) {
    uint32_t factor = 0x80000000u; /* 1 */
    for (int power = 0; bytes; power++, bytes >>= 1)
        if (bytes & 1) factor = product(byte_powers[power], factor);
    return factor;
}

/* The CRC32C of `n` ranges one after the other, from that of each and its bytes. */
EXPORTED uint32_t emlio_crc32c_joined(const uint32_t *crcs, const int64_t *sizes, int64_t n) {
    uint32_t crc = 0, factor = 0x80000000u;
    for (int64_t range = 0; range < n; range++) {
        if (!range || sizes[range] != sizes[range - 1]) factor = over_bytes((uint64_t)sizes[range]);
        crc = product(crc, factor) ^ crcs[range];
    }
    return crc;
}

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>

#define STREAMS 3
#define LONG_BYTES 8192u /* of one of the three streams; a whole block is three times as long */
#define SHORT_BYTES 256u

/* x^(8 * bytes - 33) modulo the polynomial, reflected: a carry-less product with it and one step of crc32 move a register
   over as many bytes of zeros. */
static uint64_t over_long[2], over_short[2];

static uint32_t times_x(uint32_t value) { return value & 1 ? value >> 1 ^ POLYNOMIAL : value >> 1; }

static uint32_t power_of_x(uint64_t exponent) {
    uint32_t value = 0x80000000u; /* 1 */
    while (exponent--) value = times_x(value);
    return value;
}

__attribute__((constructor)) static void fill_powers(void) {
    for (int streams = 1; streams <= 2; streams++) {
        over_long[streams - 1] = power_of_x(8ull * LONG_BYTES * streams - 33);
        over_short[streams - 1] = power_of_x(8ull * SHORT_BYTES * streams - 33);
    }
}

__attribute__((target("sse4.2,pclmul"))) static inline uint64_t moved(uint64_t crc, uint64_t power) {
    __m128i product = _mm_clmulepi64_si128(_mm_cvtsi64_si128((int64_t)crc), _mm_cvtsi64_si128((int64_t)power), 0);
    return _mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(product));
}

__attribute__((target("sse4.2,pclmul"))) static inline uint64_t word_at(const uint8_t *data) {
    uint64_t word;
    memcpy(&word, data, 8);
    return word;
}

/* The instruction takes one word a cycle but answers after three, so three streams keep it busy. */
__attribute__((target("sse4.2,pclmul"))) static uint32_t crc_by_instruction(uint32_t before, const uint8_t *data,
                                                                             size_t bytes) {
    uint64_t crc = before;
    while (bytes >= STREAMS * LONG_BYTES) {
        uint64_t second = 0, third = 0;
        for (const uint8_t *end = data + LONG_BYTES; data < end; data += 8) {
            crc = _mm_crc32_u64(crc, word_at(data));
            second = _mm_crc32_u64(second, word_at(data + LONG_BYTES));
            third = _mm_crc32_u64(third, word_at(data + 2 * LONG_BYTES));
        }
        crc = moved(crc, over_long[1]) ^ moved(second, over_long[0]) ^ third;
        data += 2 * LONG_BYTES, bytes -= STREAMS * LONG_BYTES;
    }
    while (bytes >= STREAMS * SHORT_BYTES) {
        uint64_t second = 0, third = 0;
        for (const uint8_t *end = data + SHORT_BYTES; data < end; data += 8) {
            crc = _mm_crc32_u64(crc, word_at(data));
            second = _mm_crc32_u64(second, word_at(data + SHORT_BYTES));
            third = _mm_crc32_u64(third, word_at(data + 2 * SHORT_BYTES));
        }
        crc = moved(crc, over_short[1]) ^ moved(second, over_short[0]) ^ third;
        data += 2 * SHORT_BYTES, bytes -= STREAMS * SHORT_BYTES;
    }
    for (; bytes >= 8; data += 8, bytes -= 8) crc = _mm_crc32_u64(crc, word_at(data));
    for (; bytes; data++, bytes--) crc = _mm_crc32_u8((uint32_t)crc, *data);
    return (uint32_t)crc;
}

static int has_instruction(void) {
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_SSE4_2) && (c & bit_PCLMUL);
}
#elif defined(__aarch64__) && defined(__linux__)
#include <arm_acle.h>
#include <sys/auxv.h>
#ifndef HWCAP_CRC32
#define HWCAP_CRC32 (1 << 7)
#endif

__attribute__((target("+crc"))) static uint32_t crc_by_instruction(uint32_t crc, const uint8_t *data, size_t bytes) {
    for (; bytes >= 8; data += 8, bytes -= 8) {
        uint64_t word;
        memcpy(&word, data, 8);
        crc = __crc32cd(crc, word);
    }
    for (; bytes; data++, bytes--) crc = __crc32cb(crc, *data);
    return crc;
}

static int has_instruction(void) { return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0; }
#else
static uint32_t crc_by_instruction(uint32_t crc, const uint8_t *data, size_t bytes) {
    return crc_by_table(crc, data, bytes);
}

static int has_instruction(void) { return 0; }
#endif

static uint32_t (*chosen)(uint32_t, const uint8_t *, size_t) = crc_by_table;

__attribute__((constructor)) static void choose(void) {
    if (has_instruction()) chosen = crc_by_instruction;
}

/* The number of the way: 0 the table, 1 the processor's instruction. */
EXPORTED uint32_t emlio_crc_way(void) { return chosen == crc_by_instruction; }

EXPORTED uint32_t emlio_crc32c(const uint8_t *data, uint64_t bytes, uint32_t crc) { return ~chosen(~crc, data, bytes); }

/* For tests: whatever the processor offers. */
EXPORTED uint32_t emlio_crc32c_by_table(const uint8_t *data, uint64_t bytes, uint32_t crc) {
    return ~crc_by_table(~crc, data, bytes);
}

/* ---- frames of TFRecord ---------------------------------------------------------------------------------------------- */

#define HEADER_BYTES 12u
#define FOOTER_BYTES 4u
#define FRAME_BYTES (HEADER_BYTES + FOOTER_BYTES)
#define MASK_DELTA 0xA282EAD8u

static uint64_t number_at(const uint8_t *data, int bytes) {
    uint64_t number = 0;
    for (int place = 0; place < bytes; place++) number |= (uint64_t)data[place] << (8 * place);
    return number;
}

/* Check a run of frames without gaps against their announced sizes, and write where each record's data begins and ends.

   Returns 0 if all is well; 1 if the sizes do not add up, a stored length is another one, or a checksum is wrong. */
EXPORTED int32_t emlio_check_frames(const uint8_t *payload, uint64_t bytes, const int64_t *sizes, int64_t n, int32_t verify,
                                    int64_t *starts, int64_t *ends) {
    uint64_t at = 0;
    for (int64_t frame = 0; frame < n; frame++) {
        int64_t size = sizes[frame];
        if (size < (int64_t)FRAME_BYTES || (uint64_t)size > bytes - at) return 1;
        uint64_t length = (uint64_t)size - FRAME_BYTES;
        const uint8_t *begin = payload + at;
        if (number_at(begin, 8) != length) return 1;
        if (verify) {
            uint32_t crc = ~chosen(~0u, begin + HEADER_BYTES, length);
            if ((uint32_t)((crc >> 15 | crc << 17) + MASK_DELTA) != number_at(begin + HEADER_BYTES + length, 4)) return 1;
        }
        starts[frame] = (int64_t)(at + HEADER_BYTES);
        at += (uint64_t)size;
        ends[frame] = (int64_t)(at - FOOTER_BYTES);
    }
    return at != bytes;
}

/* Write the CRC32C of each range of the payload. Returns 1 if one does not lie in it. */
EXPORTED int32_t emlio_crc32c_each(const uint8_t *payload, uint64_t bytes, const int64_t *starts, const int64_t *ends,
                                   int64_t n, uint32_t *crcs) {
    for (int64_t range = 0; range < n; range++) {
        int64_t start = starts[range], end = ends[range];
        if (start < 0 || end < start || (uint64_t)end > bytes) return 1;
        crcs[range] = ~chosen(~0u, payload + start, (size_t)(end - start));
    }
    return 0;
}
