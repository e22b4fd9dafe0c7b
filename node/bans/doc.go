// Package bans shows the bans that a table holds, and exports those of addresses to what can enforce them before a
// request reaches a node: the packet filter of the kernel, and proxies.
//
//	counters.Table ─ changed bans ─► Registry ─► lists, metrics, Manual (bans that operators began)
//	                                    └─────► Exporter: files, sets of nftables
//
// A Registry follows the changes of its table ([counters.Table.WatchBans]) and forgets bans at their ends. It never
// searches the table, so it costs nothing while nobody is banned. Whatever it says of a ban, rule, reason and who began
// it, comes from the name of the ban's meter, which a peer may have sent: it is checked, and never part of a command.
package bans
