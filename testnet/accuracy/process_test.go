package main

import (
	"bytes"
	"encoding/gob"
	"fmt"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/testnet/sim"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// A simulation in a process of its own reports the same.
func TestApart(t *testing.T) {
	o := sim.DefaultOptions()
	o.Duration, o.Compliant = 3*time.Second, 1
	o.NodeFaults = []sim.NodeFault{{Kind: sim.OwnerDown, Region: 2, From: time.Second, Until: 2 * time.Second}}
	want, err := sim.Run(t.Context(), o, nil)
	testkit.Must(t, err)
	var in, out bytes.Buffer
	testkit.Must(t, gob.NewEncoder(&in).Encode(o))
	testkit.Must(t, one(t.Context(), &in, &out))
	got := new(sim.Report)
	testkit.Must(t, gob.NewDecoder(&out).Decode(got))
	if got, want := fmt.Sprintf("%+v", *got), fmt.Sprintf("%+v", *want); got != want { // empty slices may be nil
		t.Errorf("\n got %s\nwant %s", got, want)
	}
}
