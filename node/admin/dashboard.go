package admin

import (
	"embed"
	"net/http"
)

// files are what a browser gets: plain files that ask for nothing from elsewhere.
//
//go:embed dashboard/*.html dashboard/*.css dashboard/*.js
var files embed.FS

// contentPolicy lets the page run and show only what comes from this node, and nobody frame it.
const contentPolicy = "default-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; " +
	"frame-ancestors 'none'; object-src 'none'"

// dashboard serves the page for operators at /, its files beneath /dashboard/, and all else by api. The files say
// nothing about the node, so nobody needs a role for them: the page asks api for what it shows, and for a token if api
// wants one. Here is no state and no goroutine.
func dashboard(api http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", api)
	serve := func(pattern, name string) {
		mux.HandleFunc("GET "+pattern, func(w http.ResponseWriter, r *http.Request) {
			header := w.Header()
			header.Set("Content-Security-Policy", contentPolicy)
			header.Set("X-Content-Type-Options", "nosniff")
			header.Set("Referrer-Policy", "no-referrer")
			header.Set("Cross-Origin-Opener-Policy", "same-origin")
			header.Set("Cross-Origin-Resource-Policy", "same-origin")
			header.Set("Cache-Control", "no-cache") // the next version has files of the same names
			http.ServeFileFS(w, r, files, name)
		})
	}
	serve("/{$}", "dashboard/page.html")
	for _, name := range []string{"common.js", "live.js", "playground.js", "style.css"} {
		serve("/dashboard/"+name, "dashboard/"+name)
	}
	return mux
}
