package app

import (
	"fmt"
	"net"
	"net/http"
	"strconv"
)

// Local answers only requests that were made to this machine by a name or address of the loopback: a web page whose name was made to
// lead here sends its own name, and is refused. What it guards is served without authentication, and so must listen on the loopback
// besides; ListenLocal does.
func Local(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = r.Host
		}
		if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
			http.Error(w, "only requests to localhost are answered", http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// ListenLocal listens on the port of the loopback that the flag of that name was given, 0 for any free one. The error names the flag.
func ListenLocal(flag string, port int) (net.Listener, error) {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return nil, fmt.Errorf("--%s: %w; choose another with --%[1]s=PORT", flag, err)
	}
	return l, nil
}
