// Package rowtable is the table of package counters on the lines of package rows. It is beside counters.Table until it
// decides, drains and merges all that that one does: a differential test compares both.
//
// A key has one line, its head, and a decision reads no other. The head counts what all have counted; what this table
// counted is the rest without what others did. That is computed when it is sent, and costs the same for any number of
// others.
//
//	byte  head: its words in bits, from the low end
//	   0  key
//	   8  name: meter 16, kind 4 (0), count of the newest sub-window 44
//	  16  when: newest sub-window 42, birth 10, generation 8, free 4
//	  24  state: offered 32, flags 14, changed 6; of a window age 6, of a bucket count of the sub-window before 12
//	  32  of a bucket: bucket.Level, 32 bytes. Of a window: full until 48, of which limit 16
//	  40  sum of the places 32
//	  44  10 places of 16 bits, the oldest first
//
// Offered is the cost asked for since the last drain; the line is marked while it is not 0. Changed is how many of the
// newest sub-windows have to be sent, age how many places the newest count is before the newest place. Full until is
// when, in ns from the start of the newest sub-window, a cost of 1 has room again: a denial need not compute its wait.
//
// Where a sub-window but the newest has more than 65,535 (in a bucket 4,095), or a window has more than ten, the head
// is wide: its places are in wide lines, eight sub-windows each, and a window's has 64 bits of what leaves at 40 and of
// the sum at 48. So a decision still reads one line, but for one that moves to the next sub-window, or denies.
//
//	kind         name, above the head's generation   words
//	    1  slots  0                                   4 slots: count 32, birth 32, origin 16, sub 8, spare 8
//	    2  sums   sub / 8                             8 counts of 48 bits: all others together
//	    3  block  origin / 16, 16 bits; sub, 20 bits  16 counts of 24 bits: 16 origins, one sub-window
//	    4  row    origin, birth 10, sub / 16 10 bits  16 counts of 24 bits: one origin, 16 sub-windows
//	    5  wide   sub / 8                             8 counts of 48 bits: all together
//	    6  few    as that of a row                    a row beside a line of slots
//	    7  freed  0, of any generation                time that requests which left a queue gave back 64
//	   13  parts  sub                                what others count: members by where, and sums (sums.go) 64 each
//	11 12 14 high as that of the block or row         of its counts what they have no room for, 24 bits each
//
// Nobody else counts most keys: no line but the head. Up to four slots of others lie in a line of slots. If those do
// not do, up to four origins get rows, and each slot of the line of slots says of a row whose it is, and up to when it
// counts. Beyond, there are blocks and sums. Then a row is for what an origin counted since a birth other than 0: it
// evicted the key, and made it again.
//
// The lines of a head have its generation: another one than those of a head that was evicted, or of long ago. So these
// are not found any more, and the hand or the next scan removes them. A slot merges in O(1): head, sums and block are
// found by their own hashes, and read ahead together.
//
// A sliding log is a window, but for the word at 32: its first entry 20, the one to come 20, and the sum of all 24. Its
// entries lie in lines of their own. An entry's low 3 bits say which of a line it is, the others which line.
//
//	kind         name                                words
//	    8  log    above the generation: its number   time in ns 64; 5 entries: cost 16, time since that one 48
//
// A ban, or a lift of bans, is a head alone, whoever sends it: of several times the latest is in force, so nothing of
// the others is kept but this table's own, which it sends.
//
//	byte  head of bans or lifts: its words in bits, from the low end
//	   8  meter 16, kind 4 (0), own time of the newest sub-window 44: ms since the Unix epoch
//	  32  origin of the latest time 16, 0: this table; latest time 48
//	  40  own time of the sub-window before
//	  48  of the latest time, if it is another origin's: birth 32, sub-window 32, the low bits
//
// A scan goes through the lines, so it returns the slots of a head, of the line of slots beside it, of a block, of a
// row, one line after the other, and holds a shard for a part of them. It returns, too, what moves from slots to blocks
// meanwhile.
//
// A decision is computed from what a head says, and then written in one place (layer.go). A request of several layers
// finds all heads first, decides on all, and charges them last (request.go).
//
// A head near its limit is hot: how tables divide the limit by what each of them is asked for, and what they know of
// that, is in lines of their own, of any generation of the head (hotkey.go).
//
//	kind         name                                words
//	    9  hot    0: how this table divides the limit; 1: what it is asked for; 2: what unreachable peers admitted
//	   10  rates  number                             4 rates of peers: time 32, rate 32, origin 16, flags 16
package rowtable
