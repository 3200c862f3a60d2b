/* What the files here share. */

#ifndef EMLIO_NATIVE_H
#define EMLIO_NATIVE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define EXPORTED __attribute__((visibility("default")))

#endif
