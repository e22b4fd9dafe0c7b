package scenario

import (
	"fmt"
	"time"

	"github.com/edgelimit/edgelimit/testnet/load"
)

// globalLimit asks all nodes in turn for one client, far more than its limit.
func globalLimit() Scenario {
	return Scenario{
		Name: "global-limit", What: "one client asks all six nodes in turn, 20 times a second; the limit is 100 a minute over all of them",
		Rule:    "per_ip",
		Streams: []load.Stream{{Identity: "client", Rate: 20, Spacing: load.Even}},
		Steps:   []Step{wait("20 requests a second over all nodes for 30 s", 30*time.Second)},
		Takes:   45 * time.Second,
		Check: func(r *Run) {
			admitted := r.Admitted(r.ID("client"), "")
			r.Promise("one limit holds over all regions", admitted >= 100 && admitted <= 105, "100 to 105 admitted", fmt.Sprint(admitted))
			r.Promise("it was asked for more", r.Load.Offered >= 590, "at least 590 requests", fmt.Sprint(r.Load.Offered))
		},
	}
}
