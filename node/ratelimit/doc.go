// Package ratelimit is what envoyproxy/ratelimit serves beside its protocol, for those who watch a node with what they
// have for that server: its statistics under its names ([Stats]), and its debug pages ([Debug]).
//
// A statistic is named by the descriptors of the rule file that led to a rule, as in
// "ratelimit.service.rate_limit.edge.remote_address.total_hits". Descriptors with value_to_metric and rules with
// detailed_metric put a request's values into the name. Clients choose values, so these names have a budget
// ([Options.MaxNameBytes]): beyond it, requests count under the rule's own name.
package ratelimit
