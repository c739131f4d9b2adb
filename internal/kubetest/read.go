package kubetest

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/json"
)

// selectable are the fields by which objects of a kind can be selected, besides their names.
var selectable = map[string][]string{
	"Pod":  {"spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName", "status.phase", "status.nominatedNodeName"},
	"Node": {"spec.unschedulable"}, "Secret": {"type"}, "Namespace": {"status.phase"}, "Job": {"status.successful"},
	"Event": {"involvedObject.kind", "involvedObject.namespace", "involvedObject.name", "involvedObject.uid", "reason", "type"},
}

// selection returns what says whether an object is asked for.
func (in *request) selection() (func(object) bool, error) {
	query := in.URL.Query()
	byLabel, err := labels.Parse(query.Get("labelSelector"))
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	byField, err := fields.ParseSelector(query.Get("fieldSelector"))
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	asked := byField.Requirements()
	for _, r := range asked {
		if r.Field != "metadata.name" && r.Field != "metadata.namespace" && !slices.Contains(selectable[in.kind.Kind], r.Field) {
			return nil, apierrors.NewBadRequest("field label not supported: " + r.Field)
		}
	}
	return func(u object) bool {
		if in.key.Namespace != "" && u.GetNamespace() != in.key.Namespace || !byLabel.Matches(labels.Set(u.GetLabels())) {
			return false
		}
		values := fields.Set{}
		for _, r := range asked {
			v, found, _ := unstructured.NestedFieldNoCopy(u.Object, strings.Split(r.Field, ".")...)
			if found && v != nil {
				values[r.Field] = fmt.Sprint(v)
			}
		}
		return byField.Matches(values)
	}, nil
}

// list answers with the objects that are selected, in parts if the client wants it so. A later part is of what is there by then.
func (s *Server) list(in *request) (any, error) {
	selected, err := in.selection()
	if err != nil {
		return nil, err
	}
	query := in.URL.Query()
	from, err := base64.RawURLEncoding.DecodeString(query.Get("continue"))
	if err != nil {
		return nil, apierrors.NewBadRequest("continue key is not valid: " + err.Error())
	}
	limit, _ := strconv.Atoi(query.Get("limit"))
	form := in.form()
	meta := map[string]any{"resourceVersion": strconv.Itoa(s.version)}
	items := []any{}
	for _, u := range in.table.sorted(in.key.Namespace) {
		if !selected(u) || len(from) > 0 && key(u).String() <= string(from) {
			continue
		}
		if limit > 0 && len(items) == limit {
			meta["continue"] = base64.RawURLEncoding.EncodeToString(from)
			break
		}
		items = append(items, form(u))
		if limit > 0 {
			from = []byte(key(u).String())
		}
	}
	out := map[string]any{"apiVersion": in.kind.GroupVersion().String(), "kind": in.kind.Kind + "List", "metadata": meta, "items": items}
	if strings.Contains(in.Header.Get("Accept"), "as=PartialObjectMetadata") {
		out["apiVersion"], out["kind"] = "meta.k8s.io/v1", "PartialObjectMetadataList"
	}
	return out, nil
}

// bookmarkEvery is the time between the bookmarks of a quiet watch.
const bookmarkEvery = time.Minute

// watcher is one watch.
type watcher struct {
	in       *request
	w        http.ResponseWriter
	selected func(object) bool
	form     func(object) map[string]any
	next     int // of the table's log
	version  int // up to which the client knows
	cut      int
	expired  int
}

// watch tells the changes from a version on until the client goes, its time is over, or somebody ends it.
func (s *Server) watch(w http.ResponseWriter, in *request) {
	selected, err := in.selection()
	if err != nil {
		fail(w, err)
		return
	}
	query := in.URL.Query()
	v := &watcher{in: in, w: w, selected: selected, form: in.form()}
	initial := query.Get("resourceVersion") == "" || query.Get("resourceVersion") == "0" || query.Get("sendInitialEvents") == "true"
	if !initial {
		if v.version, err = strconv.Atoi(query.Get("resourceVersion")); err != nil {
			fail(w, apierrors.NewBadRequest("invalid resource version: "+err.Error()))
			return
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	var end, mark <-chan time.Time
	if seconds, _ := strconv.Atoi(query.Get("timeoutSeconds")); seconds > 0 {
		timer := time.NewTimer(time.Duration(seconds) * time.Second)
		defer timer.Stop()
		end = timer.C
	}
	if query.Get("allowWatchBookmarks") == "true" {
		ticker := time.NewTicker(bookmarkEvery)
		defer ticker.Stop()
		mark = ticker.C
	}
	for first := true; ; first = false {
		lines, news, over := s.look(v, first, first && initial, query.Get("sendInitialEvents") == "true")
		for _, line := range lines {
			if _, err := w.Write(line); err != nil {
				return
			}
		}
		if f, ok := w.(http.Flusher); ok {
			f.Flush()
		}
		if over {
			return
		}
		select {
		case <-news:
		case <-end:
			return
		case <-mark:
			if _, err := w.Write(v.bookmark(false)); err != nil {
				return
			}
		case <-in.Context().Done():
			return
		}
	}
}

// look is what a watch has to be told now, what it waits for then, and whether it is over.
func (s *Server) look(v *watcher, first, initial, marked bool) (lines [][]byte, news <-chan struct{}, over bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := v.in.table
	if first {
		v.cut, v.expired = t.cut, t.expired
	}
	switch {
	case initial:
		for _, u := range t.sorted("") {
			if v.selected(u) {
				lines = append(lines, line("ADDED", v.form(u)))
			}
		}
		v.next, v.version = len(t.log), s.version
		if marked {
			lines = append(lines, v.bookmark(true))
		}
		return lines, s.news, false
	case v.expired != t.expired || first && v.version < t.lost:
		gone := apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", v.version, t.lost)).Status()
		gone.Kind, gone.APIVersion = "Status", "v1"
		return [][]byte{line("ERROR", &gone)}, nil, true
	case v.cut != t.cut:
		return nil, nil, true
	case first:
		v.next, _ = slices.BinarySearchFunc(t.log, v.version+1, func(e event, version int) int { return e.version - version })
	}
	end := len(t.log)
	if t.until >= 0 {
		end = min(end, t.until)
	}
	for ; v.next < end; v.next++ {
		e := t.log[v.next]
		was, is := e.old != nil && v.selected(e.old), !e.gone && v.selected(e.now)
		switch {
		case was && is:
			lines = append(lines, line("MODIFIED", v.form(e.now)))
		case is:
			lines = append(lines, line("ADDED", v.form(e.now)))
		case was:
			last := e.old.DeepCopy()
			last.SetResourceVersion(strconv.Itoa(e.version))
			lines = append(lines, line("DELETED", v.form(last)))
		}
		v.version = e.version
	}
	if v.next == len(t.log) {
		v.version = s.version // nothing of the kind has happened since
	}
	return lines, s.news, false
}

// bookmark tells the client up to where it knows everything.
func (v *watcher) bookmark(initial bool) []byte {
	meta := map[string]any{"resourceVersion": strconv.Itoa(v.version), "creationTimestamp": nil}
	if initial {
		meta["annotations"] = map[string]any{metav1.InitialEventsAnnotationKey: "true"}
	}
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": v.in.kind.GroupVersion().String(), "kind": v.in.kind.Kind, "metadata": meta}}
	return line("BOOKMARK", v.form(u))
}

func line(what string, object any) []byte {
	body, err := json.Marshal(map[string]any{"type": what, "object": object})
	if err != nil {
		panic(fmt.Sprintf("kubetest: %v", err))
	}
	return append(body, '\n')
}
