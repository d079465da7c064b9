package strategy

// Metrics are the places where Prometheus finds the metrics of a run.
type Metrics struct {
	// TextFile is the path of a file for node_exporter, Listen an address such as
	// "127.0.0.1:9400"; empty: none.
	TextFile, Listen string
}
