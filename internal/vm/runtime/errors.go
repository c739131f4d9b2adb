package runtime

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/muster-scheduler/muster/internal/vm"
)

// code is the gRPC code of each kind of error. The kubelet tries everything again; what it takes from the code is whether something is gone
// (NotFound) and, of ExecSync, whether a probe took too long (DeadlineExceeded).
func code(kind vm.Kind) codes.Code {
	switch kind {
	case vm.Invalid:
		return codes.InvalidArgument
	case vm.NotFound:
		return codes.NotFound
	case vm.Conflict:
		return codes.FailedPrecondition
	case vm.Unavailable:
		return codes.Unavailable
	case vm.Exhausted:
		return codes.ResourceExhausted
	case vm.Internal:
		return codes.Internal
	}
	return codes.Internal
}

// answer turns an error into what goes over the wire. Errors that are a gRPC status already stay as they are.
func answer(err error) error {
	if err == nil {
		return nil
	}
	var st interface{ GRPCStatus() *status.Status }
	switch {
	case errors.As(err, &st):
		return err
	case vm.KindOf(err) != vm.Internal:
	case errors.Is(err, context.DeadlineExceeded):
		return status.Error(codes.DeadlineExceeded, err.Error())
	case errors.Is(err, context.Canceled):
		return status.Error(codes.Canceled, err.Error())
	}
	return status.Error(code(vm.KindOf(err)), err.Error())
}

// unary is around every call: errors get their code, and a defect that one request brings out ends that request and nothing else.
func (s *Server) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
	defer s.called(info.FullMethod, time.Now(), &err)
	defer func() {
		if p := recover(); p != nil {
			s.log.Error(fmt.Errorf("%v", p), "a defect", "method", info.FullMethod, "stack", string(debug.Stack()))
			resp, err = nil, status.Errorf(codes.Internal, "a defect in %s: %v", info.FullMethod, p)
		}
	}()
	resp, err = handler(ctx, req)
	if err != nil {
		return nil, answer(err)
	}
	return resp, nil
}

// stream is the same for streams.
func (s *Server) stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
	if info.FullMethod != runtimeapi.RuntimeService_GetContainerEvents_FullMethodName {
		defer s.called(info.FullMethod, time.Now(), &err)
	}
	defer func() {
		if p := recover(); p != nil {
			s.log.Error(fmt.Errorf("%v", p), "a defect", "method", info.FullMethod, "stack", string(debug.Stack()))
			err = status.Errorf(codes.Internal, "a defect in %s: %v", info.FullMethod, p)
		}
	}()
	return answer(handler(srv, ss))
}

// called tells of a call that has ended.
func (s *Server) called(method string, began time.Time, err *error) {
	if s.opt.Called == nil {
		return
	}
	code := ""
	if *err != nil {
		code = status.Code(*err).String()
	}
	s.opt.Called(method[strings.LastIndexByte(method, '/')+1:], time.Since(began), code)
}
