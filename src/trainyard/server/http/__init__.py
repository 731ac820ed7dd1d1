"""HTTP below the AWS protocols: sockets, TLS certificates, connections and request bodies."""
