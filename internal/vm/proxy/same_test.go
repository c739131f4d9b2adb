package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/durationpb"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/muster-scheduler/muster/internal/vm/socket"
)

// fill gives a message with every field set, to a depth, and with fields that nobody knows in it and in the messages in it.
func fill(m protoreflect.Message, depth int) {
	fields := m.Descriptor().Fields()
	scalar := func(f protoreflect.FieldDescriptor) protoreflect.Value {
		switch f.Kind() {
		case protoreflect.StringKind:
			return protoreflect.ValueOfString(fmt.Sprintf("%s-%d", f.Name(), f.Number()))
		case protoreflect.BytesKind:
			return protoreflect.ValueOfBytes([]byte{0, byte(f.Number()), 255})
		case protoreflect.BoolKind:
			return protoreflect.ValueOfBool(true)
		case protoreflect.EnumKind:
			return protoreflect.ValueOfEnum(1)
		case protoreflect.Int32Kind:
			return protoreflect.ValueOfInt32(int32(f.Number()))
		case protoreflect.Uint32Kind:
			return protoreflect.ValueOfUint32(uint32(f.Number()))
		case protoreflect.Int64Kind:
			return protoreflect.ValueOfInt64(-int64(f.Number()))
		case protoreflect.Uint64Kind:
			return protoreflect.ValueOfUint64(uint64(f.Number()))
		case protoreflect.DoubleKind:
			return protoreflect.ValueOfFloat64(1.5)
		default:
			panic(f.FullName())
		}
	}
	for i := range fields.Len() {
		f := fields.Get(i)
		switch {
		case f.IsMap():
			m.Mutable(f).Map().Set(protoreflect.ValueOfString("key").MapKey(), protoreflect.ValueOfString("value"))
		case f.Message() != nil && depth == 0:
		case f.IsList() && f.Message() != nil:
			for range 2 {
				fill(m.Mutable(f).List().AppendMutable().Message(), depth-1)
			}
		case f.IsList():
			m.Mutable(f).List().Append(scalar(f))
		case f.Message() != nil:
			fill(m.Mutable(f).Message(), depth-1)
		default:
			m.Set(f, scalar(f))
		}
	}
	unknown := protowire.AppendString(protowire.AppendTag(nil, 5000, protowire.BytesType), "from a newer "+string(m.Descriptor().Name()))
	unknown = protowire.AppendFixed64(protowire.AppendTag(unknown, 5001, protowire.Fixed64Type), 7)
	m.SetUnknown(unknown)
}

// filled are the bytes of a filled message of a type.
func filled(t testing.TB, d protoreflect.MessageDescriptor) []byte {
	m := dynamicpb.NewMessage(d)
	fill(m, 3)
	out, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// methods are all RPCs of the CRI by their full names.
func methods() map[string]protoreflect.MethodDescriptor {
	out := map[string]protoreflect.MethodDescriptor{}
	services := cri.File_staging_src_k8s_io_cri_api_pkg_apis_runtime_v1_api_proto.Services()
	for i := range services.Len() {
		of := services.Get(i).Methods()
		for j := range of.Len() {
			out[fmt.Sprintf("/%s/%s", services.Get(i).FullName(), of.Get(j).Name())] = of.Get(j)
		}
	}
	return out
}

// TestRules holds the table of methods against the descriptor of the CRI.
func TestRules(t *testing.T) {
	t.Parallel()
	all := methods()
	for name, m := range all {
		r, ok := rules[name]
		if !ok {
			t.Errorf("%s has no rule", name)
			continue
		}
		if streams := r.way == toAllStreams || r.way == events; streams != m.IsStreamingServer() || m.IsStreamingClient() {
			t.Errorf("%s: streaming is %v", name, m.IsStreamingServer())
		}
		first := m.Input().Fields().ByNumber(1)
		wantField := map[way]string{toSandbox: "pod_sandbox_id", toContainer: "container_id", imageStatus: "image", pull: "image", removeImage: "image"}[r.way]
		if wantField != "" && string(first.Name()) != wantField {
			t.Errorf("%s: field 1 is %s, want %s", name, first.Name(), wantField)
		}
		if r.keeps {
			if id := m.Output().Fields().ByNumber(1).Message().Fields().ByNumber(1); id.Name() != "id" {
				t.Errorf("%s: field 1 of its items is %s", name, id.Name())
			}
		}
		if r.plain != "" {
			p := all[r.plain]
			if p == nil || p.Output().Fields().ByNumber(1).Message() != m.Output().Fields().ByNumber(1).Message() {
				t.Errorf("%s: its items are not those of %s", name, r.plain)
			}
			if f := m.Input().Fields().ByNumber(1); f != nil && f.Message() != p.Input().Fields().ByNumber(1).Message() {
				t.Errorf("%s: its filter is not that of %s", name, r.plain)
			}
		}
	}
	for name := range rules {
		if all[name] == nil {
			t.Errorf("%s is no method of the CRI", name)
		}
	}
}

// rawRuntime answers every method, known or not, with what answer gives, and remembers what it was asked.
type rawRuntime struct {
	mu     sync.Mutex
	asked  map[string][]string
	answer func(method string, req []byte, ss grpc.ServerStream) error
}

func (r *rawRuntime) serve(t testing.TB, socket string) {
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(grpc.ForceServerCodecV2(rawCodec{}), grpc.MaxRecvMsgSize(maxMessage), grpc.WaitForHandlers(true), grpc.UnknownServiceHandler(func(_ any, ss grpc.ServerStream) error {
		method, _ := grpc.MethodFromServerStream(ss)
		var f frame
		if err := ss.RecvMsg(&f); err != nil {
			return err
		}
		r.mu.Lock()
		if r.asked == nil {
			r.asked = map[string][]string{}
		}
		r.asked[method] = append(r.asked[method], string(f.body))
		r.mu.Unlock()
		return r.answer(method, f.body, ss)
	}))
	ended := make(chan struct{})
	go func() {
		_ = s.Serve(l)
		close(ended)
	}()
	t.Cleanup(func() {
		s.Stop()
		<-ended
	})
}

// result is all that a caller sees of a call.
type result struct {
	Bodies          []string
	Header, Trailer metadata.MD
	Code            codes.Code
	Message         string
	Details         []string
}

// ask makes a call with one request and reads at most so many answers; 0 reads all.
func ask(t testing.TB, conn *grpc.ClientConn, method string, req []byte, most int) result {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	ctx = metadata.AppendToOutgoingContext(ctx, "traceparent", "00-1-2-01", "blob-bin", "\x00\xff", "many", "a", "many", "b")
	cs, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, method, grpc.ForceCodecV2(rawCodec{}))
	if err != nil {
		t.Fatal(err)
	}
	if err := cs.SendMsg(&frame{body: req}); err != nil {
		t.Fatal(err)
	}
	_ = cs.CloseSend()
	var out result
	for most == 0 || len(out.Bodies) < most {
		var f frame
		if err = cs.RecvMsg(&f); err != nil {
			break
		}
		out.Bodies = append(out.Bodies, string(f.body))
	}
	if err == nil { // the rest is not wanted
		return out
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	out.Header, _ = cs.Header()
	out.Trailer = cs.Trailer()
	s := status.Convert(err)
	out.Code, out.Message = s.Code(), s.Message()
	for _, d := range s.Proto().GetDetails() {
		out.Details = append(out.Details, d.String())
	}
	return out
}

// startProxy runs a proxy until the test ends, and dials it.
func startProxy(t testing.TB, c Config) *grpc.ClientConn {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	c, err := c.complete()
	if err != nil {
		t.Fatal(err)
	}
	l, err := socket.Listen(c.Listen, c.Mode)
	if err != nil {
		t.Fatal(err)
	}
	p, err := newRouter(c, logr.Discard())
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		ended <- p.serve(ctx, l)
		_ = l.Close()
	}()
	conn := dialKubelet(t, c.Listen)
	t.Cleanup(func() {
		_ = conn.Close()
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the proxy ended with %v", err)
		}
	})
	for _, b := range p.backends {
		if len(p.backends) > 1 {
			until(t, b.name+" to be greeted", func() bool { return b.greetings.Load() > 0 })
		}
	}
	return conn
}

// echo answers with every field set, with the caller's metadata, and, if the request asks for it, with an error that has details.
func echo(t testing.TB) *rawRuntime {
	all := methods()
	return &rawRuntime{answer: func(method string, req []byte, ss grpc.ServerStream) error {
		in, _ := metadata.FromIncomingContext(ss.Context())
		md := metadata.MD{"many": in["many"], "traceparent": in["traceparent"], "blob-bin": in["blob-bin"]}
		_, timed := ss.Context().Deadline()
		md.Set("timed", fmt.Sprint(timed))
		if err := ss.SetHeader(md); err != nil {
			return err
		}
		ss.SetTrailer(metadata.MD{"trail": {"x", "y"}, "trail-bin": {"\x00\x01"}})
		if strings.Contains(string(req), "fail, please") {
			st, err := status.New(codes.ResourceExhausted, "no room: ü").WithDetails(durationpb.New(time.Second))
			if err != nil {
				return err
			}
			return st.Err()
		}
		body, n := []byte("not a message \xff"), 1
		if m := all[method]; m != nil {
			body = filled(t, m.Output())
			if m.IsStreamingServer() {
				n = 3
			}
		}
		for range n {
			if err := ss.SendMsg(&frame{body: body}); err != nil {
				return err
			}
		}
		if rules[method].way == events { // has no end
			<-ss.Context().Done()
			return ss.Context().Err()
		}
		return nil
	}}
}

// nobody is a backend that has nothing.
func nobody() *rawRuntime {
	return &rawRuntime{answer: func(method string, _ []byte, ss grpc.ServerStream) error {
		switch {
		case strings.HasSuffix(method, "Status") && rules[method].way != statusOfAll && rules[method].way != imageStatus:
			return status.Error(codes.NotFound, "nothing is here")
		case rules[method].way == events:
			<-ss.Context().Done()
			return ss.Context().Err()
		case rules[method].way == toAllStreams:
			return nil
		}
		return ss.SendMsg(&frame{})
	}}
}

// TestSame holds every RPC of the CRI, and some that it has not, against the same call without a proxy: with the primary alone, and with a
// backend that has nothing.
func TestSame(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	primary := echo(t)
	primary.serve(t, dir+"/p")
	nobody().serve(t, dir+"/b")
	direct := dialKubelet(t, dir+"/p")
	t.Cleanup(func() { _ = direct.Close() })
	alone := startProxy(t, Config{Listen: dir + "/alone", Primary: dir + "/p"})
	beside := startProxy(t, Config{Listen: dir + "/beside", Primary: dir + "/p", State: dir + "/state", Backends: []Backend{{Name: "other", Socket: dir + "/b", Handlers: []string{"other"}, ImagePrefixes: []string{"other/"}}}})

	failing := protowire.AppendString(protowire.AppendTag(nil, 6000, protowire.BytesType), "fail, please")
	type request struct {
		name, method string
		body         []byte
	}
	var requests []request
	for name, m := range methods() {
		full := filled(t, m.Input())
		requests = append(requests, request{"all fields", name, full}, request{"empty", name, nil}, request{"error", name, append(slices.Clone(full), failing...)})
	}
	for _, name := range []string{"/runtime.v1.RuntimeService/FromTheFuture", "/runtime.v2.RuntimeService/Version", "/grpc.health.v1.Health/Check"} {
		requests = append(requests, request{"of a method that is not known", name, []byte("\x0a\x02id")}, request{"error", name, failing}, request{"empty", name, nil})
	}
	for _, r := range requests {
		t.Run(fmt.Sprintf("%s %s", r.method, r.name), func(t *testing.T) {
			most := 0
			if rules[r.method].way == events && r.name != "error" {
				most = 3
			}
			asked := func() string {
				primary.mu.Lock()
				defer primary.mu.Unlock()
				all := primary.asked[r.method]
				return all[len(all)-1]
			}
			want := ask(t, direct, r.method, r.body, most)
			for name, conn := range map[string]*grpc.ClientConn{"alone": alone, "beside": beside} {
				got := ask(t, conn, r.method, r.body, most)
				if asked() != string(r.body) {
					t.Errorf("%s: the request arrived as %x, want %x", name, asked(), r.body)
				}
				want := want
				if name == "beside" {
					switch way := rules[r.method].way; {
					case way == statusOfAll && got.Code == codes.OK:
						got.Bodies = []string{withoutAdditions(t, got.Bodies[0])}
					case way == events || way == toAllStreams:
						got.Header, want.Header = nil, nil // of several streams there is no one header
						got.Trailer, want.Trailer = nil, nil
					}
					if rules[r.method].keeps && r.name == "error" {
						continue // what is known is given; the scenarios have it
					}
					if rules[r.method].way == toAll || rules[r.method].way == toAllStreams {
						if r.name == "error" {
							continue // the backend's part is given
						}
					}
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s: -direct +proxied:\n%s", name, diff)
				}
			}
		})
	}
}

// withoutAdditions takes off a Status answer what the proxy adds at its end.
func withoutAdditions(t *testing.T, body string) string {
	more, err := proto.MarshalOptions{Deterministic: true}.Marshal(&cri.StatusResponse{
		Status: &cri.RuntimeStatus{Conditions: []*cri.RuntimeCondition{{
			Type: "Backend/other", Reason: "ConditionMissing", Message: `runtime "other": its status has no condition RuntimeReady`,
		}}},
		RuntimeHandlers: []*cri.RuntimeHandler{{Name: "other"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	rest, ok := strings.CutSuffix(body, string(more))
	if !ok {
		t.Errorf("status does not end with what is added: %q", body)
	}
	return rest
}

// TestLarge passes messages as large as a kubelet takes, both ways.
func TestLarge(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	large := protowire.AppendBytes(protowire.AppendTag(nil, 5000, protowire.BytesType), make([]byte, 16<<20-16))
	(&rawRuntime{answer: func(_ string, req []byte, ss grpc.ServerStream) error { return ss.SendMsg(&frame{body: req}) }}).serve(t, dir+"/p")
	nobody().serve(t, dir+"/b")
	conn := startProxy(t, Config{Listen: dir + "/l", Primary: dir + "/p", Backends: []Backend{{Name: "other", Socket: dir + "/b"}}})
	for _, method := range []string{"ListContainers", "ExecSync", "Version", "Unknown"} {
		got := ask(t, conn, runtimeService+method, large, 0)
		if got.Code != codes.OK || len(got.Bodies) != 1 || got.Bodies[0] != string(large) {
			t.Errorf("%s: %v %s, %d answers", method, got.Code, got.Message, len(got.Bodies))
		}
	}
}
