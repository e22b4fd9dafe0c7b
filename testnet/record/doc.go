// Package record keeps what happened in one run of a testnet: every decision, every fault, and once a second what each node
// exported. Package checker judges it.
//
// # Format
//
// A record is lines of JSON, compressed with gzip where the file's name ends in ".gz". Every line ends in a newline and is an object
// with one of these members, which says what the line is:
//
//	{"header":{"version":1,"rule":{...},"nodes":[...],"started":...}}    the first line, and no other
//	{"decision":{"sent":...,"done":...,"node":"us-east-1",...}}          see Decision
//	{"event":{"at":...,"name":"partition","target":"eu-west",...}}       see Event
//	{"observation":{"sent":...,"done":...,"node":"us-east-1",...}}       see Observation
//
// Lines after the header come in any order. Members are only ever appended, and readers skip those that they do not know. Times are
// Unix nanoseconds of one clock, that of whoever writes the record.
//
// A last line without its newline, or a compressed file without its end, was cut off: the run or its machine broke down. That is
// [ErrTruncated], and not a shorter record.
package record
