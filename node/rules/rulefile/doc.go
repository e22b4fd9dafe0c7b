// Package rulefile reads rule files: it makes a [rules.Set] of them, or reports everything that is wrong with them at
// once, as [Error] values with file, line, column and reason. A [Watcher] reads files again when they change. [Schema]
// is for editors.
//
// README.md of package rules is the reference of the format.
package rulefile
