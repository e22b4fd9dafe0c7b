package admin

import (
	"errors"
	"log/slog"
	"net/http"
)

var errNoLevel = errors.New("say which level: {\"level\":\"debug\"}, or info, warn, error")

func registerLogLevel(mux *http.ServeMux, level *slog.LevelVar, log *slog.Logger) {
	mux.HandleFunc("/api/log-level", func(w http.ResponseWriter, r *http.Request) {
		switch r.Method {
		case http.MethodGet, http.MethodHead:
		case http.MethodPost:
			req := struct {
				Level *slog.Level `json:"level"`
			}{}
			status, err := readJSON(w, r, &req)
			if err == nil && req.Level == nil {
				status, err = http.StatusBadRequest, errNoLevel
			}
			if err != nil {
				refuse(w, status, err.Error())
				return
			}
			if was := level.Level(); was != *req.Level {
				level.Set(*req.Level)
				// As a warning, so that it is in most logs.
				log.Warn("log level", "was", was, "is", *req.Level, "by", operatorOf(r).String())
			}
		default:
			w.Header().Set("Allow", "GET, HEAD, POST")
			refuse(w, http.StatusMethodNotAllowed, "the level is read with GET, and set with POST and a JSON body")
			return
		}
		reply(w, map[string]any{"level": level.Level()})
	})
}
