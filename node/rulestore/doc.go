// Package rulestore keeps rule files and overrides in Redis, with versions: commands publish them, nodes follow them.
//
// A [Store] is one Redis. It holds two documents, [Rules] and [Limits], each with the version in force and a bounded
// history. A version is published as a whole by one script that compares what is in force with what the publisher has
// seen. A [Source] follows a Store for a node: messages make it fast, and polling finds what messages miss. What comes
// from Redis, or from the copy on disk, is checked before it is used; the last good versions stay in force otherwise.
//
// node/rules/REDIS.md has the layout in Redis, the rights that are needed, and what to do in each fault.
package rulestore
