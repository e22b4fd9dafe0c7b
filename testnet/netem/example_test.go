package netem_test

import (
	"fmt"

	"github.com/edgelimit/edgelimit/testnet/netem"
)

// Two regions, partitioned and healed. For a cluster, hand each transport to memberlist.Config.Transport, inside a
// bubble of testing/synctest.
func ExampleNetwork() {
	links := netem.NewLinks(1)
	links.SetDefaults(netem.Link{}, netem.Link{Duplicate: 1})
	network := netem.NewNetwork(links)

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
	fmt.Println("sent", c.Sent, "duplicated", c.Duplicated, "partitioned", c.Partitioned, "delivered", c.Delivered)
	// Output:
	// hello
	// hello
	// there you are
	// there you are
	// sent 3 duplicated 2 partitioned 1 delivered 4
}
