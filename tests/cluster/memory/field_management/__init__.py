"""Field management: types of objects, server-side apply, patches and merges."""
