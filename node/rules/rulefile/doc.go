// Package rulefile reads rule files: it makes a [rules.Set] of them, or reports everything that is wrong with them at
// once, as [Error] values with file, line, column and reason. A [Watcher] reads files again when they change. [Schema]
// is for editors.
//
// With the compatibility [Ratelimit], or in a document that says so, files are those of envoyproxy/ratelimit: what that
// server takes is taken and means the same, with warnings ([rules.Set.Warnings]) of what other files may not have; what
// it refuses is refused. testdata/ratelimit holds archives of files with its verdicts.
//
// README.md of package rules is the reference of the format.
package rulefile
