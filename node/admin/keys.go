package admin

import (
	"net/http"

	"github.com/edgelimit/edgelimit/node/status"
)

// Keys is what operators may ask about gossip keys.
type Keys interface {
	KeyHolders() []status.KeyHolder
}

func registerKeys(mux *http.ServeMux, keys Keys) {
	mux.HandleFunc("/api/keys", func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			refuse(w, http.StatusMethodNotAllowed, "keys are listed with GET, and changed in the nodes' key files")
			return
		}
		reply(w, map[string]any{"nodes": keys.KeyHolders()})
	})
}
