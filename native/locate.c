/* Where records lie: the file of each, and where it begins and ends there.

   Covers: looking up many records of many shards. Does not cover: which records, reading them. */

#include "emlio_native.h"

#define AHEAD 8

/* The columns of the table of shards. */
enum { STARTS, START_STEP, ENDS, END_STEP, RECORDS, FIRST_FILE, FILE_STEP };

static const int64_t *entry(int64_t array, int64_t step, int64_t record) {
    return (const int64_t *)(uintptr_t)((uint64_t)array + (uint64_t)step * (uint64_t)record);
}

/* Write the file, the begin and the end of each record.

   The table has a row for each of the columns above: the address of the shard's begins, and the bytes from one to the
   next; the same of its ends; the number of its records; the file of the first one, and by how much the file's number
   rises from record to record. Returns 1 if there is no such shard or record. */
EXPORTED int32_t emlio_locate(const int64_t *table, int64_t shards, const int64_t *numbers, const int64_t *records,
                              int64_t n, int64_t *files, int64_t *starts, int64_t *ends) {
    for (int64_t at = 0; at < n; at++) {
        if (at + AHEAD < n) {
            const int64_t number = numbers[at + AHEAD];
            if (number < 0 || number >= shards) return 1;
            /* The record's number is not checked yet, but no address is forbidden to ask for. */
            __builtin_prefetch(entry(table[STARTS * shards + number], table[START_STEP * shards + number],
                                     records[at + AHEAD]));
        }
        const int64_t number = numbers[at], record = records[at];
        if (number < 0 || number >= shards || record < 0 || record >= table[RECORDS * shards + number]) return 1;
        files[at] = table[FIRST_FILE * shards + number] + table[FILE_STEP * shards + number] * record;
        starts[at] = *entry(table[STARTS * shards + number], table[START_STEP * shards + number], record);
        ends[at] = *entry(table[ENDS * shards + number], table[END_STEP * shards + number], record);
    }
    return 0;
}
