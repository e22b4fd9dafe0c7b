// Package rows is the memory of a table: lines of 64 bytes in open-addressed arrays, one array a shard.
//
// A line lies at the home of its hash, or at the first free line after it (linear probing), and what a search compares
// is in the line itself: a cold lookup waits for memory once, and for the neighbour that the processor fetches anyway.
// Lines refer to each other by name, never by place, so any line may move: a removal moves those after it back. A
// shard is at most 13/16 full, so a key of one line takes 79 bytes. There is nothing else to manage: no pages, no block
// sizes, no lists, no index.
//
// A shard begins with a page or two, and doubles where it is, in steps ([Shard.Grow]), up to its part of the memory.
// What is used by then goes into huge pages ([Store.UseHugePages]).
//
//	hash     63      58 57          32 31                           0
//	        |  shard   |              |  home = low 32 bits * homes >> 32; half of it for a line that a growing shard
//	                                     has not moved yet
//
//	line     0   key      8 bytes
//	         8   name     8 bytes: meter 16 bits, 0 if the line is free; kind 4; rest 44
//	        16   words   48 bytes, the caller's
//
// The head of a key is found by its meter and key, the other lines by all of their name. Their hashes follow from that
// of the head, so they are in its shard, and the misses of several lines overlap.
//
// Nobody holds a shard for long: a scan ([Shard.Scan], [Shard.Drain]) goes by parts. [Cursor] states what it guarantees
// though lines move meanwhile.
package rows
