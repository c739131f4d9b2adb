package sim

import (
	"encoding/json"
	"net/http"
	"strings"
)

// maxBody is the largest request that is read: some hundred thousand queues.
const maxBody = 64 << 20

// Handler serves KAI's POST /simulate: a DivideRequest in, the fair shares by UID out. Another method is answered 405, a body that
// cannot be read or divided 400 with the reason, another path 404. With cors, browsers of any origin may ask.
func Handler(hierarchy, cors bool) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/simulate", func(w http.ResponseWriter, r *http.Request) {
		if cors {
			h := w.Header()
			h.Set("Access-Control-Allow-Origin", "*")
			h.Set("Access-Control-Allow-Methods", "POST, OPTIONS")
			h.Set("Access-Control-Allow-Headers", "Content-Type")
			if r.Method == http.MethodOptions {
				w.WriteHeader(http.StatusOK)
				return
			}
		}
		if r.Method != http.MethodPost {
			w.Header().Set("Allow", http.MethodPost)
			http.Error(w, "only POST is served here", http.StatusMethodNotAllowed)
			return
		}
		req, err := ReadDivide(http.MaxBytesReader(w, r.Body, maxBody), false)
		if err != nil {
			http.Error(w, "bad request body: "+err.Error(), http.StatusBadRequest)
			return
		}
		shares, err := Divide(req, hierarchy)
		if err != nil {
			http.Error(w, "bad request: "+err.Error(), http.StatusBadRequest)
			return
		}
		var text strings.Builder
		if err := json.NewEncoder(&text).Encode(shares); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(text.String())) // a client that hung up needs no answer
	})
	return mux
}
