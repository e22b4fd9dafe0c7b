package gossiptest_test

import (
	"fmt"

	"github.com/edgelimit/edgelimit/gossip/gossiptest"
)

// Two regions, cut apart and healed. For a cluster, hand each transport to memberlist.Config.Transport, inside a bubble of
// testing/synctest.
func ExampleNetwork() {
	links := gossiptest.NewLinks(1)
	links.SetDefaults(gossiptest.Link{}, gossiptest.Link{Duplicate: 1})
	network := gossiptest.NewNetwork(links)

	paris, err := network.NewTransport("10.0.1.1:7946", "eu-west")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer paris.Shutdown()
	tokyo, err := network.NewTransport("10.0.2.1:7946", "ap-east")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer tokyo.Shutdown()

	_, _ = paris.WriteTo([]byte("hello"), "10.0.2.1:7946")
	links.Partition("ap-east")
	_, _ = paris.WriteTo([]byte("anybody there?"), "10.0.2.1:7946")
	links.Heal()
	_, _ = paris.WriteTo([]byte("there you are"), "10.0.2.1:7946")

	for len(tokyo.PacketCh()) > 0 {
		fmt.Println(string((<-tokyo.PacketCh()).Buf))
	}
	c := links.Counts()
	fmt.Println("sent", c.Sent, "duplicated", c.Duplicated, "cut", c.Cut, "delivered", c.Delivered)
	// Output:
	// hello
	// hello
	// there you are
	// there you are
	// sent 3 duplicated 2 cut 1 delivered 4
}
