package counters

import (
	"syscall"
	"unsafe"
)

// adviseHugePages asks the kernel to map the words in huge pages. It may do without.
func adviseHugePages(words []uint64) {
	_ = syscall.Madvise(unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), len(words)*wordBytes), syscall.MADV_HUGEPAGE)
}
