package limits

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// A stranger who breaks a connection after the other fills no log, and the text from outside is no message.
func TestServerLogFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := new(testkit.Log)
		server := ServerLog(log.Logger())
		for port := range 1000 {
			server.Printf("http2: server connection error from 192.0.2.1:%d: PROTOCOL_ERROR", port)
		}
		if n := strings.Count(log.String(), "\n"); n != serverLines {
			t.Errorf("%d lines in a second", n)
		}
		if !log.HasLine(`level=WARN msg="http server" detail="http2: server connection error from 192.0.2.1:0: PROTO`) {
			t.Errorf("the log is %s", log)
		}
		time.Sleep(time.Second)
		server.Print("http: Accept error")
		if !log.HasLine(`msg="http server: lines left out of this log" lines=980`) ||
			!log.HasLine(`detail="http: Accept error"`) {
			t.Errorf("the log is %s", log)
		}
	})
}
