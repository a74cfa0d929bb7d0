"""`make release`: wheel, sdist, chart, manifests and images, with SBOMs and checksums, built twice and tried."""
