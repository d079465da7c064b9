package cause

import "strings"

// peerMarks precede the address of the other side of a connection that failed: NCCL's InfiniBand
// plugin, its bootstrap and its proxy, gloo.
var peerMarks = []string{"completion from peer ", "Connect to ", "closed by remote peer ", "closed by peer [",
	"Read error [", "] connect ["}

// Failed is the part of a message that names what failed in NCCL or in a GPU: the operation that
// timed out, the warning, the driver's event; empty: none.
func Failed(text string) string {
	between := func(begin, end string) string {
		_, rest, _ := strings.Cut(text, begin)
		value, _, ok := strings.Cut(rest, end)
		if !ok {
			return ""
		}
		return value
	}
	if op, number, limit := between("OpType=", ","), between("SeqNum=", ","), between("Timeout(ms)=", ")"); op != "" &&
		number != "" && limit != "" {
		seconds, whole := strings.CutSuffix(limit, "000")
		if !whole {
			return op + " " + number + ", after " + limit + " ms"
		}
		return op + " " + number + ", after " + seconds + " s"
	}
	for _, mark := range []string{"NCCL WARN ", "NVRM: ", "CUDA error: "} {
		if _, words, ok := strings.Cut(text, mark); ok {
			return strings.TrimSuffix(words, ".")
		}
	}
	return ""
}

// Loopback reports whether an address is that of any machine itself.
func Loopback(address string) bool {
	return strings.HasPrefix(address, "127.") || address == "::1" || address == "localhost"
}

// LinkLocal reports whether an address is valid in its network segment only.
func LinkLocal(address string) bool { return strings.HasPrefix(address, "fe80:") }

// ReporterIn is the number of the rank whose watchdog wrote a message; empty: none.
func ReporterIn(text string) string {
	_, rest, _ := strings.Cut(text, "[Rank ")
	number, end := leadingDigits(rest, 7)
	if !strings.HasPrefix(end, "]") {
		return ""
	}
	return number
}

// PeerIn is the address of the other side in a message about a connection that failed; empty:
// none.
func PeerIn(text string) string {
	for _, mark := range peerMarks {
		_, rest, _ := strings.Cut(text, mark)
		if i := strings.IndexAny(rest, "<] ,"); i > 0 && i < 64 && (rest[i] == '<' || strings.ContainsAny(rest[:i], ".:")) {
			return rest[:i]
		}
	}
	return ""
}

// networkPatterns match reports about collectives, stores and ports. Ranks print nearly all of
// them when another rank dies.
var networkPatterns = []pattern{
	// ProcessGroupNCCL's watchdog, 1.x and 2.x.
	{code: NCCLTimeout, weight: WeightSymptom, words: words("Watchdog caught collective operation timeout"),
		phase: Collective},
	{code: NCCLTimeout, weight: WeightSymptom, words: words("Timeout at NCCL work"), phase: Collective},
	{code: NCCLTimeout, weight: WeightSymptom, words: words("Heartbeat monitor timed out"), phase: Collective},
	{code: NCCLTimeout, weight: WeightSymptom, words: words("watchdog got stuck for ", " without making progress")},
	{code: NCCLTimeout, weight: WeightSymptom,
		words: words("Timed out initializing process group in store based barrier"), phase: Load},
	{code: NCCLTimeout, weight: WeightSymptom, words: words("Watchdog caught collective operation"), phase: Collective},
	{code: NCCLTimeout, weight: WeightSymptom, words: words("failed to pass monitoredBarrier"), phase: Collective},
	{code: NCCLTimeout, weight: WeightSymptom, words: words("monitoredBarrier", "failed to pass"), phase: Collective},
	// Gloo
	{code: NCCLTimeout, weight: WeightSymptom, words: words("Timed out waiting", "ms for recv operation to complete"),
		phase: Collective},
	{code: NCCLTimeout, weight: WeightSymptom, words: words("Timed out waiting", "ms for send operation to complete"),
		phase: Collective},
	// NCCL binds to ports that the system chooses, not to the port of the rendezvous.
	{code: NCCLError, weight: WeightWarning, words: words("NCCL WARN ", "ddress already in use")},
	// Ports: TCPStore, Gloo, Python's sockets. TCPStore warns of an address family that fails,
	// and continues with the other.
	{code: PortInUse, weight: WeightWarning, words: words("[W", "ddress already in use")},
	// Servers that take another port, and ssh, which continues without the tunnel.
	{code: PortInUse, weight: WeightWarning, words: words("ddress already in use", "rying")},
	{code: PortInUse, weight: WeightWarning, words: words("ddress already in use", "nother port")},
	{code: PortInUse, weight: WeightWarning, words: words("WARN", "ddress already in use")},
	{code: PortInUse, weight: WeightWarning, words: words("bind [", "]:", ": Address already in use")},
	{code: PortInUse, words: words("EADDRINUSE")},
	{code: PortInUse, words: words("ddress already in use")},
	{code: PortInUse, words: words("The server socket has failed to listen on any local network address")},
	// NCCL's own errors; ncclRemoteError is a peer that went away.
	{code: NCCLError, weight: WeightSymptom, words: words("ncclRemoteError")},
	{code: NCCLError, weight: WeightSymptom, words: words("NCCL communicator was aborted")},
	{code: NCCLError, weight: WeightSymptom, words: words("remote process exited or there was a network error")},
	{code: NCCLError, weight: WeightSymptom, words: words("NCCL watchdog thread terminated with exception")},
	{code: NCCLError, weight: WeightSymptom, words: words("unhandled cuda error")},
	{code: NCCLError, words: words("NCCL error in:")},
	{code: NCCLError, words: words("unhandled system error")}, // without the place: DataParallel's "NCCL Error 2"
	{code: NCCLError, words: words("ncclSystemError")},
	{code: NCCLError, words: words("ncclInternalError")},
	{code: NCCLError, words: words("ncclInvalidUsage")},
	{code: NCCLError, words: words("ncclUnhandledCudaError")},
	{code: NCCLError, words: words("Duplicate GPU detected")},
	// printed after either
	{code: NCCLTimeout, weight: WeightSymptom, words: words("Some NCCL operations have failed or timed out"),
		phase: Collective},
	// Other vendors' libraries: Huawei's HCCL, AMD's RCCL, Intel's oneCCL and XCCL,
	// Cambricon's CNCL, Kunlunxin's BKCL, Moore Threads' MCCL.
	{code: NCCLError, weight: WeightSymptom, words: words("CL watchdog thread terminated with exception")},
	// HCCL's EI0002
	{code: NCCLTimeout, weight: WeightSymptom, words: words("wait execution of the Notify register times out"),
		phase: Collective},
	{code: NCCLTimeout, weight: WeightSymptom, words: words("EI0002", "Notify", "time"), phase: Collective},
	{code: NCCLError, words: words("HCCL error in:")},
	{code: NCCLError, words: words("HCCL function error")},
	{code: NCCLError, words: words("call hccl api failed")},
	{code: NCCLError, words: words("RCCL error")},
	{code: NCCLError, words: words("RCCL ERROR")},
	{code: NCCLError, words: words("XCCL error")},
	{code: NCCLError, words: words("XCCL ERROR")},
	{code: NCCLError, words: words("CNCL error in:")},
	{code: NCCLError, words: words("MCCL error in:")},
	{code: NCCLError, words: words("BKCL error")},
	{code: NCCLError, words: words("oneCCL: ", "EXCEPTION")},
	{code: NCCLError, words: words("|CCL_ERROR|")},
	{code: NCCLError, words: words("NCCL failure ")}, // NVIDIA's tests
	// NCCL's functions pass an error on to their callers, up to those that the job called.
	{code: NCCLError, weight: WeightSymptom, words: words("NCCL INFO group.cc:", " -> "), phase: Collective},
	{code: NCCLError, weight: WeightSymptom, words: words("NCCL INFO init.cc:", " -> "), phase: Collective},
	{code: NCCLError, weight: WeightSymptom, words: words("NCCL INFO enqueue.cc:", " -> "), phase: Collective},
	{code: NCCLError, weight: WeightSymptom, words: words("NCCL WARN [", "Failed to execute operation ", "retcode "),
		phase: Collective},
	{code: NCCLError, weight: WeightSymptom, words: words("NCCL WARN ", "Connect to ", " failed")},
	{code: NCCLError, weight: WeightWarning, words: words("NCCL WARN ")},
	// the last error of an exception
	{code: NCCLError, weight: WeightSymptom, words: words("Connection closed by remote peer")},
	// Gloo's peers, and NCCL's bootstrap over the store.
	{code: NCCLError, weight: WeightSymptom, words: words("gloo", "Connection closed by peer")},
	{code: NCCLError, weight: WeightSymptom, words: words("gloo", "Connection reset by peer")},
	// No route to host, for example
	{code: NCCLError, weight: WeightSymptom, words: words("gloo", "] connect ["), phase: Load},
	{code: NCCLError, weight: WeightSymptom, words: words("Gloo connectFullMesh failed"), phase: Load},
	{code: NCCLError, weight: WeightSymptom, words: words("is setting up NCCL communicator and retrieving ncclUniqueId")},
	// Stores and peers that are gone.
	{code: Unknown, weight: WeightSymptom, words: words("recvValueWithTimeout failed")},
	{code: Unknown, weight: WeightSymptom, words: words("recvValue failed on SocketImpl")},
	{code: Unknown, weight: WeightSymptom, words: words("Failed to recv, got 0 bytes")},
	{code: Unknown, weight: WeightSymptom,
		words: words("Connection was likely closed. Did the remote server shutdown or crash")},
	{code: Unknown, weight: WeightSymptom, words: words("Connection closed by peer")},
	// Every client of a network logs these, and most try again.
	{code: Unknown, weight: WeightWarning, words: words("Connection reset by peer")},
	{code: Unknown, weight: WeightWarning, words: words("Broken pipe")},
	{code: Unknown, weight: WeightSymptom, words: words("The client socket has timed out after")},
	{code: Unknown, weight: WeightSymptom, words: words("torch.distributed.DistStoreError")},
	{code: Unknown, weight: WeightSymptom, words: words("torch.distributed.DistNetworkError")},
	{code: Unknown, weight: WeightWarning, words: words("Error waiting on exit barrier")},
	{code: Unknown, weight: WeightWarning, words: words("RendezvousConnectionError")},
	{code: Unknown, weight: WeightSymptom, words: words("RendezvousTimeoutError")},
}
