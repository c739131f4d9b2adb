package lab

import (
	"net/http"
	"strings"
)

// parseRequest reads a request's path as Kubernetes lays it out:
//
//	/api/v1/[namespaces/NS/]RESOURCE[/NAME[/SUB…]]
//	/apis/GROUP/VERSION/[namespaces/NS/]RESOURCE[/NAME[/SUB…]]
func parseRequest(r *http.Request) Request {
	req := Request{Method: r.Method, URL: r.URL}
	q := r.URL.Query().Get("watch")
	req.Watch = q == "true" || q == "1"
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case len(parts) >= 3 && parts[0] == "api":
		req.Version, parts = parts[1], parts[2:]
	case len(parts) >= 4 && parts[0] == "apis":
		req.Group, req.Version, parts = parts[1], parts[2], parts[3:]
	default:
		return req
	}
	// A namespace's own subresources are two: everything else below it is a resource in it.
	if parts[0] == "namespaces" && len(parts) > 2 && parts[2] != "status" && parts[2] != "finalize" {
		req.Namespace, parts = parts[1], parts[2:]
	}
	req.Resource = parts[0]
	if len(parts) > 1 {
		req.Name = parts[1]
	}
	if len(parts) > 2 {
		req.Subresource = strings.Join(parts[2:], "/")
	}
	return req
}

func (m Match) matches(r Request) bool {
	return (m.Method == "" || m.Method == r.Method) &&
		(m.Resource == "" || m.Resource == r.Resource && m.Group == r.Group) &&
		(m.AnySubresource || m.Subresource == r.Subresource) &&
		(m.Namespace == "" || m.Namespace == r.Namespace) &&
		(m.Name == "" || m.Name == r.Name) &&
		(m.Where == nil || m.Where(r))
}
