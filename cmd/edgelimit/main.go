// Command edgelimit is a multi-region edge rate limiter: its nodes decide in their own memory and gossip what they
// admitted. See edgelimit --help.
package main

import (
	"os"

	"github.com/edgelimit/edgelimit/cmd/edgelimit/app"
)

func main() {
	os.Exit(app.Main(app.New()))
}
